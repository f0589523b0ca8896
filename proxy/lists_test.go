package proxy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/filetest"
)

const screened = `
client_ip: {trusted_proxies: [192.0.2.1]}
keys: {phone: {from: "header:X-Phone", normalize: digits, on_missing: skip}}
lists:
  testers: {key: phone, file: testers.txt, action: bypass}
  offices: {key: client_ip, values: [198.51.100.0/24, "2001:db8::1"], action: bypass}
  stolen: {key: phone, values: ["3", "4"], action: deny}
  bots: {key: "header:X-App", values: [bot], action: deny}
upstreams: {demo: echo}
routes:
  - {name: a, match: {path: /a}, upstream: demo, lists: [testers, offices, stolen], limits: [{name: l, key: global, rate: 1/1h}]}
  - {name: b, match: {path: /b}, upstream: demo, lists: bots, limits: [{name: l, key: global, rate: 9/1h}]}
`

func listed(t *testing.T, testers string) *testProxy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "testers.txt")
	filetest.Write(t, testers, file)
	return newProxy(t, strings.Replace(screened, "testers.txt", file, 1))
}

func TestLists_BypassAndDeny(t *testing.T) {
	w := listed(t, "# testers\n+1\n 3 # also stolen\n")
	w.sendsAll([]int{200, 429}, "GET", "/a", "X-Phone: 9")
	w.sends(429, "GET", "/a")
	for range 3 {
		rec := w.sends(200, "GET", "/a", "X-Phone: (1)")
		w.hasField(rec, "RateLimit", "")
	}
	for _, from := range []string{"198.51.100.7", "2001:db8::1"} {
		w.sends(200, "GET", "/a", "X-Forwarded-For: "+from)
	}
	w.sends(429, "GET", "/a", "X-Forwarded-For: 198.51.101.7")
	w.sends(429, "GET", "/a", "X-Forwarded-For: 2001:db8:1::1")
	w.sends(403, "GET", "/a", "X-Phone: 4")
	w.sends(403, "GET", "/a", "X-Phone: 3") // deny goes before bypass
	rec := w.sends(403, "GET", "/a", "X-Phone: 4", "X-Forwarded-For: 198.51.100.7")
	if body := rec.Body.String(); rec.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(body, "stolen") {
		t.Errorf("%v %s; want a problem that says nothing of lists", rec.Header(), body)
	}
	for labels, want := range map[[3]string]float64{
		{"a", "testers", "bypass"}: 3,
		{"a", "offices", "bypass"}: 2,
		{"a", "stolen", "deny"}:    3,
	} {
		w.counted(want, w.metrics.listMatches.WithLabelValues(labels[:]...))
	}
	if got := w.lines("request")[3]["list"]; got != "testers" {
		t.Errorf("list = %v; want testers", got)
	}
}

// A request without the key of a list is dealt with as the key says.
func TestLists_WithoutTheKey(t *testing.T) {
	w := listed(t, "")
	w.sends(400, "GET", "/b")
	w.sends(400, "GET", "/b", "X-App: bot", "X-App: other")
	w.sends(403, "GET", "/b", "X-App: bot")
	w.sends(200, "GET", "/b", "X-App: Bot")
	w.sends(200, "GET", "/a")
}

// A list's file belongs to the configuration: a change of it is a change, and a
// bad line changes nothing.
func TestLists_FilesAreReloaded(t *testing.T) {
	w := listed(t, "1\n")
	w.sends(200, "GET", "/a")
	w.sends(429, "GET", "/a", "X-Phone: 2")
	files := w.current.Load().config.Files
	if len(files) != 2 || filepath.Base(files[1]) != "testers.txt" {
		t.Fatalf("Files = %v; want the list's file to be watched", files)
	}
	filetest.Write(t, "2\nnone\n", files[1])
	if _, err := w.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), files[1]+":2:1: ") {
		t.Errorf("Reload = %v; want a problem at line 2 of the list's file", err)
	}
	w.sends(429, "GET", "/a", "X-Phone: 2")
	filetest.Write(t, "2\n", files[1])
	if report, err := w.Reload(t.Context()); err != nil || !report.Changed {
		t.Errorf("Reload = %+v, %v; want a change", report, err)
	}
	w.sends(200, "GET", "/a", "X-Phone: 2")
	w.sends(429, "GET", "/a", "X-Phone: 1")
}

// The neighbours of an address in its network are not let through with it; they are
// refused with it.
func TestLists_AddressesExactly(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [192.0.2.1]}
lists:
  friends: {key: client_ip, values: ["2001:db8::1", "2001:db8:1::/48"], action: bypass}
  foes: {key: client_ip, values: ["2001:db8:2::1"], action: deny}
routes:
  - {name: a, match: {path: /a}, upstream: echo, lists: [friends, foes], limits: [{key: client_ip, rate: 1/1h}]}
`)
	from := func(address string) string { return "X-Forwarded-For: " + address }
	w.sends(200, "GET", "/a", from("2001:db8::2"))
	w.sends(429, "GET", "/a", from("2001:db8::3"))
	for range 3 {
		w.sends(200, "GET", "/a", from("2001:db8::1"))
		w.sends(200, "GET", "/a", from("2001:db8:1:5::7"))
	}
	w.sends(403, "GET", "/a", from("2001:db8:2::2"))
}

const served = `
client_ip: {trusted_proxies: [192.0.2.1]}
keys:
  phone: {from: "header:X-Phone", normalize: e164, on_missing: skip}
  country: {of: phone, part: country}
lists:
  served: {key: country, values: [DE, AT], action: only}
  offices: {key: client_ip, values: [198.51.100.0/24, "2001:db8::1"], action: only}
  resold: {key: phone, values: ["+49151", "437"], match: prefix, action: deny}
  testers: {key: phone, values: ["+4930", "+43", "+1"], match: prefix, action: bypass}
  apps: {key: "header:X-App", values: [web], action: only}
  bots: {key: "header:X-Bot", values: [bot], action: deny}
routes:
  - {name: a, match: {path: /a}, upstream: echo, lists: [served, resold, testers], limits: [{name: l, key: global, rate: 1/1h}]}
  - {name: b, match: {path: /b}, upstream: echo, lists: [served, offices], limits: [{name: l, key: global, rate: 100/1h}]}
  - {name: c, match: {path: /c}, upstream: echo, lists: [apps, bots]}
`

func TestLists_OnlyTheseAndPrefixes(t *testing.T) {
	w := newProxy(t, served)
	phone := func(number string) string { return "X-Phone: " + number }
	w.sends(200, "GET", "/a", phone("+4989123456"))
	w.sends(429, "GET", "/a", phone("+4989123457"))
	for range 3 { // bypass
		w.sends(200, "GET", "/a", phone("+4930901820"))
		w.sends(200, "GET", "/a", phone("+431234567"))
	}
	w.sends(403, "GET", "/a", phone("+4915123456789"))
	w.sends(403, "GET", "/a", phone("+43720123456")) // deny takes precedence over bypass
	w.sends(403, "GET", "/a", phone("+12015550123")) // and so does only
	w.sends(403, "GET", "/a")                        // the key is missing: not on the list
	for action, want := range map[[3]string]float64{{"a", "served", "only"}: 2, {"a", "resold", "deny"}: 2, {"a", "testers", "bypass"}: 6} {
		w.counted(want, w.metrics.listMatches.WithLabelValues(action[:]...))
	}
}

// A request must be on each list of which the keys alone are let through, an address itself and not
// its network.
func TestLists_EachOnly(t *testing.T) {
	w := newProxy(t, served)
	for _, c := range []struct {
		status         int
		number, client string
	}{
		{200, "+4989123456", "198.51.100.7"},
		{200, "+4989123456", "2001:db8::1"},
		{403, "+4989123456", "2001:db8::2"},
		{403, "+4989123456", "198.51.101.7"},
		{403, "+12015550123", "198.51.100.7"},
	} {
		w.sends(c.status, "GET", "/b", "X-Phone: "+c.number, "X-Forwarded-For: "+c.client)
	}
}

// A preflight has none of the keys that it asks to send: it passes lists of them, and not those of addresses.
func TestLists_LetPreflightsPass(t *testing.T) {
	w := newProxy(t, served)
	ask := []string{"Origin: https://example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-phone"}
	w.sends(200, "OPTIONS", "/a", ask...)
	w.sends(403, "OPTIONS", "/a", append(ask, "X-Phone: +12015550123")...)
	w.sends(403, "OPTIONS", "/b", ask...)
	w.sends(200, "OPTIONS", "/b", append(ask, "X-Forwarded-For: 198.51.100.7")...)
	w.sends(200, "OPTIONS", "/c", ask...)
	w.sends(400, "GET", "/c")
}
