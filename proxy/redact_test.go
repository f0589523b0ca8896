package proxy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// Without a secret a hash in the log is not the one that anybody can make of a phone
// number; those who share a salt write the same.
func TestRedact_WithoutASecretHashesAreSalted(t *testing.T) {
	const file = "keys: {phone: header:X-Phone}\n"
	limits := limitYAML("{key: phone, rate: 1/1h}")
	hash := func(yaml string, change ...func(*Options)) string {
		w := newProxy(t, yaml+limits, change...)
		w.sendsAll([]int{200, 429}, "GET", "/a", "X-Phone: 13800138000")
		return w.lines("request")[1]["key"].(string)
	}
	guess := limiter.KeyOf("phone", "13800138000").String()[:keyDigits]
	salt := NewSalt()
	shared := func(o *Options) { o.LogSalt = func() Salt { return salt } }
	one, other, first, second := hash(file), hash(file), hash(file, shared), hash(file, shared)
	if one == guess || other == guess || one == other {
		t.Errorf("hashes %s and %s of two processes, %s unsalted; want three different ones", one, other, guess)
	}
	if first != second || first == one {
		t.Errorf("hashes %s and %s under one salt; want the same", first, second)
	}
	const secret = "a-secret-long-enough-for-this"
	want := limiter.KeyWithSecret([]byte(secret), "phone", "13800138000").String()[:keyDigits]
	if got := hash("privacy: {hash_secret: " + secret + "}\n" + file); got != want {
		t.Errorf("hash %s under a secret; want %s, as in the store", got, want)
	}
}

func TestRedact_TheClientsAddress(t *testing.T) {
	for _, c := range []struct{ client, setting, want string }{
		{"198.51.100.7", "full", "198.51.100.7"},
		{"198.51.100.7", "network", "198.51.100.0/24"},
		{"2001:db8:1:2:3:4:5:6", "network", "2001:db8:1::/48"},
		{"198.51.100.7", "none", ""},
	} {
		x := &exchange{client: client{addr: netip.MustParseAddr(c.client)}}
		r := redactor{privacy: config.Privacy{LogClient: config.LogClient(c.setting)}}
		if got := r.client(x); got != c.want {
			t.Errorf("%s of %s is %q; want %q", c.setting, c.client, got, c.want)
		}
	}
	for setting, want := range map[string]string{"": "192.0.2.1", "privacy: {log_client: network}\n": "192.0.2.0/24"} {
		w := newProxy(t, setting+limitYAML("{key: global, rate: 9/1h}"))
		w.sends(200, "GET", "/a")
		if got := w.lines("request")[0]["client"]; got != want {
			t.Errorf("%q: client = %v; want %s", setting, got, want)
		}
	}
	for _, setting := range []string{"none", "hashed", "hashed, hash_secret: a-secret-long-enough"} {
		w := newProxy(t, "privacy: {log_client: "+setting+"}\n"+limitYAML("{key: client_ip, rate: 1/1h}"))
		for range 3 {
			w.send("GET", "/a")
		}
		if strings.Contains(w.log.String(), "192.0.2.1") {
			t.Errorf("%s: the address is in the log: %s", setting, w.log.String())
		}
		lines := w.lines("request")
		_, there := lines[0]["client"]
		if there != strings.HasPrefix(setting, "hashed") || lines[0]["client"] != lines[1]["client"] {
			t.Errorf("%s: clients %v and %v", setting, lines[0]["client"], lines[1]["client"])
		}
	}
}

// logsPath sends a request and wants its path to be logged so.
func (p *testProxy) logsPath(path, want string) {
	p.Helper()
	p.send("GET", path)
	lines := p.lines("request")
	if got := fmt.Sprint(lines[len(lines)-1]["path"]); got != want {
		p.Errorf("path %s is logged as %s; want %s", path, got, want)
	}
}

// A phone number in a path is logged nowhere unless it is in a route's own words.
func TestRedact_Paths(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: open, match: {path: "/open/{id}"}, upstream: echo}
  - {name: user, match: {path: "/users/{name}/x/{number}"}, upstream: echo, log_path: redacted}
  - {name: tree, match: {path: "/tree/*"}, upstream: echo, log_path: redacted}
`)
	for _, c := range []struct{ path, want string }{
		{"/open/abc", "/open/abc"},
		{"/users/alice/x/1", "/users/*/x/*"},
		{"/tree/v1/13800138000/send", "/tree/v1/*/send"},
		{"/tree/a@example.com", "/tree/*"},
		{"/tree/%2B8613800138000", "/tree/*"},
		{"/nowhere/v2/13800138000", "/nowhere/v2/*"},
		{"/nowhere/2026/a%20b/x", "/nowhere/2026/*/x"},
		{"/" + strings.Repeat("x", 65), "/*"},
		{"/" + strings.Repeat("ab/", 200), "/" + strings.Repeat("ab/", 85)},
	} {
		w.logsPath(c.path, c.want)
	}
	if strings.Contains(w.log.String(), "138001") {
		t.Errorf("a phone number is in the log: %s", w.log.String())
	}
}

// A key in a path is hidden where it stands, also if another segment is like it or begins with it.
func TestRedact_KeysInPaths(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: user, match: {path: "/users/{user}"}, upstream: echo, limits: [{key: "path:user", rate: 9/1h}]}
  - {name: from, match: {path: "/from/{other}/{user}/x"}, upstream: echo, limits: [{key: "path:user", rate: 9/1h}]}
`)
	for _, c := range []struct{ path, want string }{
		{"/users/us", "/users/*"}, {"/users/users", "/users/*"},
		{"/from/ab/a/x", "/from/ab/*/x"}, {"/from/a/a/x", "/from/a/*/x"}, {"/from/from/from/x", "/from/from/*/x"},
	} {
		w.logsPath(c.path, c.want)
	}
	for _, d := range w.Decisions(view.DecisionQuery{N: 10}) { // of the allowed ones a sample
		if !strings.Contains(w.log.String(), `"path":"`+d.Path+`"`) {
			t.Errorf("a path is recorded as %s, and logged otherwise", d.Path)
		}
	}
}

const maskedConfig = `
keys:
  partner: "header:X-Partner"
  phone: {from: "header:X-Phone", sensitive: true, normalize: {as: e164, default_region: CN}}
  range: {of: phone, part: prefix, drop_last: 4}
  country: {of: phone, part: country}
routes:
  - name: send
    match: {path: /send}
    respond: {body: ok}
    limits:
      - {name: partner, key: partner, rate: 1/1h}
      - {name: phone, key: phone, rate: 1/1h}
      - {name: range, key: range, rate: 1/1h}
      - {name: country, key: country, rate: 1/1h, overrides: {CN: 20/1h}}
`

// One rule says what is shown of a key, wherever it is shown: a key that is not sensitive in clear, a
// sensitive one masked, a range of numbers without what is personal.
func TestMasked_OneRuleEverywhere(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	lines := []string{"X-Partner: acme", "X-Phone: 13800138000"}
	w.sendsAll([]int{200, 429}, "GET", "/send", lines...)
	want := map[string]string{"partner": "partner=acme", "phone": "phone=+86138****8000", "range": "range=+861380013", "country": "country=CN"}
	ids := map[string]string{}

	for _, l := range w.Decisions(view.DecisionQuery{Outcome: "refused"})[0].Limits {
		if l.Masked != want[l.Limit] {
			t.Errorf("decisions: %s is shown as %q; want %q", l.Limit, l.Masked, want[l.Limit])
		}
		ids[l.Limit] = l.ID
	}
	for _, l := range w.Top(view.TopQuery{}).Limits {
		if got := l.Requests.Keys[0].Masked; got != want[l.Limit] {
			t.Errorf("top: %s is shown as %q; want %q", l.Limit, got, want[l.Limit])
		}
	}
	for name, value := range map[string]string{"partner": "acme", "phone": "13800138000", "range": "+861380013", "country": "CN"} {
		for how, pair := range map[string]string{"value": name + "=" + value, "id": name + "=" + ids[name]} {
			if got := w.stands(pair)["send."+name].Masked; got != want[name] {
				t.Errorf("state by %s: %s is shown as %q; want %q", how, name, got, want[name])
			}
		}
	}
	e := w.explains("GET", "/send", lines...)
	for _, k := range e.Keys {
		if k.Value != want[k.Name] {
			t.Errorf("explain: %s is shown as %q; want %q", k.Name, k.Value, want[k.Name])
		}
	}
	if log := w.log.String(); strings.Contains(log, "acme") || strings.Contains(log, "13800138000") {
		t.Errorf("the log has a key in clear:\n%s", log)
	}
	if strings.Contains(fmt.Sprint(w.Decisions(view.DecisionQuery{}), w.Top(view.TopQuery{}), e.Keys, e.Limits), "13800138000") {
		t.Error("a sensitive key is shown in clear")
	}
}

// A key named by its id is the key named by its value: with the rates of its override, and masked.
func TestMasked_AnIDKeepsTheOverride(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	w.sends(200, "GET", "/send", "X-Partner: a", "X-Phone: 13800138000")
	byValue := w.stands("country=CN")["send.country"]
	byID := w.stands("country=" + byValue.ID)["send.country"]
	if byID.Windows[0] != byValue.Windows[0] || byID.Windows[0].Rate != "20/1h" || byID.Masked != "country=CN" {
		t.Errorf("by id: %+v; by value: %+v", byID, byValue)
	}
	other := newRememberingProxy(t, maskedConfig)
	other.sends(200, "GET", "/send", "X-Partner: a", "X-Phone: 13800138000")
	unknown := other.stands("country=JP")["send.country"]
	if got := other.stands("country=" + unknown.ID)["send.country"]; got.Masked != "country" || got.Windows[0].Rate != "1/1h" {
		t.Errorf("an id of which no request is remembered is shown as %+v; want the name of the key", got)
	}
}

// What is kept has no key in clear: neither the log of operators' actions nor the audit trail.
func TestMasked_WhatIsKeptIsMaskedInAnyCase(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	w.sends(200, "GET", "/send", "X-Partner: acme-corporation", "X-Phone: 13800138000")
	id := w.stands("partner=acme-corporation")["send.partner"].ID
	for _, pair := range []string{"partner=acme-corporation", "partner=" + id} {
		got := w.stands(pair)["send.partner"]
		if got.Masked != "partner=acme-corporation" || got.Logged != "partner=acme****tion" {
			t.Errorf("%s is shown as %q, and kept as %q; want it masked where it is kept", pair, got.Masked, got.Logged)
		}
		if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "acme****") {
			t.Errorf("%s, %v; want one form in the answer", text, err)
		}
	}
}

// A page is often below the path of the request, so that its URL has what the path of the log hides.
func TestRedact_RefererHasNoKeyOfAPath(t *testing.T) {
	for route, want := range map[string]any{
		`{match: {path: "/keyed/{user}"}, respond: {body: ok}, limits: [{key: "path:user", rate: 9/1h}]}`: "*",
		`{match: {path: "/keyed/{user}"}, respond: {body: ok}, log_path: redacted}`:                       "*",
		`{match: {path: "/keyed/{user}"}, respond: {body: ok}}`:                                           "http://example.com/keyed/alice/edit",
	} {
		w := newProxy(t, "access_log: {fields: [path, referer]}\nroutes:\n  - "+route+"\n")
		w.sends(200, "GET", "/keyed/alice", "Referer: http://example.com/keyed/alice/edit")
		if got := w.lines("request")[0]["referer"]; got != want {
			t.Errorf("%s: referer %v; want %v", route, got, want)
		}
	}
}
