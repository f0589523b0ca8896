package simulate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/net/html"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/weirtest"
)

// mustRun simulates logs.
func mustRun(t *testing.T, yaml, compare string, logs ...string) *Report {
	t.Helper()
	o := Options{Format: Auto, Configs: []*config.Config{weirtest.Load(t, yaml)}, Top: 5}
	if compare != "" {
		o.Configs = append(o.Configs, weirtest.Load(t, compare))
	}
	var err error
	if o.Names, err = NewNames(nil, o.Configs...); err != nil {
		t.Fatal(err)
	}
	for i, text := range logs {
		o.Logs = append(o.Logs, Log{fmt.Sprint("log", i), strings.NewReader(text)})
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// nginxLine is a line of nginx's JSON.
func nginxLine(second float64, method, uri, phone string) string {
	return fmt.Sprintf(`{"msec":"%.3f","remote_addr":"192.0.2.1","request_method":"%s","request_uri":"%s","host":"a","status":"200","request_time":"0.001","http_x_phone":"%s"}`+"\n", 1_795_345_547+second, method, uri, phone)
}

func compressed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// However lines are spread over files, in which order the files are named, and how lines
// are mixed up within a minute: the counts are the same.
func TestRun_OrderOfLinesAndFiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []string
	for i := range 600 {
		all = append(all, nginxLine(float64(i)+random.Float64(), "POST", "/send", fmt.Sprint(random.IntN(20))))
	}
	want := mustRun(t, file, "", strings.Join(all, ""))
	if l := want.Result.Routes[0].Limits; l[0].Refused == 0 || l[1].Refused == 0 || want.Requests != 600 {
		t.Fatalf("%+v: nothing was refused", l)
	}
	mixed := slices.Clone(all)
	for part := range slices.Chunk(mixed, 40) {
		random.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
	var even, odd []string
	for i, l := range all {
		if i%2 == 0 {
			even = append(even, l)
		} else {
			odd = append(odd, l)
		}
	}
	for name, logs := range map[string][]string{
		"gzip":           {compressed(strings.Join(all, ""))},
		"rotated":        {strings.Join(all[400:], ""), compressed(strings.Join(all[:200], "")), strings.Join(all[200:400], "")},
		"of two servers": {strings.Join(even, ""), strings.Join(odd, "")},
		"mixed up":       {strings.Join(mixed, "")},
		"Windows":        {strings.ReplaceAll(strings.Join(all, "\n"), "\n", "\r\n")},
	} {
		got := mustRun(t, file, "", logs...)
		got.Result.Keys = want.Result.Keys // keys that have rested are forgotten at random moments
		if a, b := stringOf(mustJSON(t, got.Result)), stringOf(mustJSON(t, want.Result)); a != b || got.Late != 0 {
			t.Errorf("%s: %d late\n%s\nwant\n%s", name, got.Late, a, b)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRun_LateLinesAreTold(t *testing.T) {
	got := mustRun(t, file, "", nginxLine(0, "POST", "/send", "1")+nginxLine(300, "POST", "/send", "2")+nginxLine(400, "POST", "/send", "3")+nginxLine(10, "POST", "/send", "3"))
	if got.Late != 1 || got.Requests != 4 || !got.IsUnordered() || !strings.HasPrefix(got.Notes[0], "the result is wrong: 1 of 4 requests") || !strings.HasSuffix(got.Notes[0], "or sort the log by time") {
		t.Errorf("%+v, notes %q; want one late request, and what to do", got.Counts, got.Notes)
	}
	text := written(got)
	if above, table := strings.Index(text, "warning: the result is wrong"), strings.Index(text, "ROUTE"); above < 0 || above > table || strings.Contains(text, "note: the result") {
		t.Errorf("the report says\n%s\nwant that the result is wrong above it", text)
	}
	var rest strings.Builder
	for i := range 100 {
		rest.WriteString(nginxLine(400+float64(i), "POST", "/send", "1"))
	}
	got = mustRun(t, file, "", nginxLine(399, "POST", "/send", "1")+rest.String()+nginxLine(10, "POST", "/send", "3"))
	if got.Late != 1 || got.IsUnordered() || !strings.HasPrefix(got.Notes[0], "1 of 102 requests") {
		t.Errorf("%+v, notes %q; want a note of one late request", got.Counts, got.Notes)
	}
}

// A Weir's own log, replayed by its own file, gives the figures that this Weir has shown.
func TestRun_OwnLog(t *testing.T) {
	const own = `
client_ip: {trusted_proxies: []}
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /a}
    upstream: demo
    limits: [{name: ip, key: client_ip, rates: [5/10s, 40/5m]}, {name: host, key: host, rate: 30/1m, mode: shadow}]
  - {name: b, match: {path: "/b/{id}"}, upstream: demo, limits: [{name: id, key: path:id, rate: 1/1m}, {name: ip, key: client_ip, rate: 20/1m}]}
`
	c := weirtest.Load(t, own)
	var log bytes.Buffer
	var served map[proxy.Series]int64
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(t.Context(), proxy.Options{
			Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&log).Hook(weirStamp{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			r := httptest.NewRequest("GET", []string{"http://a.example/a", "http://b.example/a", "http://a.example/b/7", "http://a.example/c"}[random.IntN(4)], nil)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", random.IntN(5))
			weirtest.Exchange(p, r)
		}
		served = p.Counts()
	})
	got := mustRun(t, own, "", `{"level":"info","message":"listening","time":"2000-01-01T00:00:00.000Z"}`+"\n"+log.String())
	if got.Others != 1 || got.Malformed != 0 || got.Requests != 2000 {
		t.Errorf("%+v", got.Counts)
	}
	for _, rt := range got.Result.Routes {
		n := int64(0)
		for _, outcome := range []string{"allowed", "refused", "shadow_refused"} {
			n += served[proxy.Series{Route: rt.Name, Result: outcome}]
		}
		if rt.Requests != n {
			t.Errorf("%s: %d requests; served %v", rt.Name, rt.Requests, served)
		}
	}
	limits := got.Result.Routes[0].Limits
	if allowed, refused := served[proxy.Series{Route: "a", Limit: "ip", Result: "allowed"}], served[proxy.Series{Route: "a", Limit: "ip", Result: "refused"}]; limits[0].Passed != allowed || limits[0].Refused != refused || refused == 0 {
		t.Errorf("%+v; served %d and %d", limits[0], allowed, refused)
	}
	if shadowed := served[proxy.Series{Route: "a", Limit: "host", Result: "shadow_refused"}]; limits[1].Shadowed != shadowed || shadowed == 0 {
		t.Errorf("%+v; served %d", limits[1], shadowed)
	}
	id := got.Result.Routes[1].Limits[0]
	if allowed, refused := served[proxy.Series{Route: "b", Limit: "id", Result: "allowed"}], served[proxy.Series{Route: "b", Limit: "id", Result: "refused"}]; id.Passed != allowed || id.Refused != refused || refused == 0 || id.Unknown > 0 {
		t.Errorf("%+v; served %d and %d", id, allowed, refused)
	}
}

// weirStamp stamps lines as Weir does.
type weirStamp struct{}

func (weirStamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str("time", time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

func TestRun_KnowsNoTokens(t *testing.T) {
	const more = `
upstreams: {demo: echo}
routes:
  - {name: b, match: {path: /b}, upstream: demo, limits: [{key: client_ip, rate: 1/1m, step_up: {rate: 9/1m, jwt: {secret: "a secret for tokens of challenges"}}}]}
`
	line := func(path string) string {
		return `192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "POST ` + path + ` HTTP/1.1" 200 1` + "\n"
	}
	r := mustRun(t, more, "", strings.Repeat(line("/b"), 3))
	if !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, "who would have solved a challenge") }) {
		t.Errorf("notes %q; want that tokens are unknown", r.Notes)
	}
	if b := r.Result.Routes[0]; b.Passed != 1 || b.Refused != 2 {
		t.Errorf("passed, refused %d, %d; want 1, 2", b.Passed, b.Refused)
	}
}

func TestRun_Notes(t *testing.T) {
	const more = `
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /a, host: api.example.com, headers: {X-App: "1"}}
    upstream: demo
  - name: b
    match: {path: /b}
    upstream: demo
    limits: [{name: k, key: header:X-Key, rate: 1/1m}, {name: held, key: client_ip, concurrent: 1}, {name: t, key: json:/a, rate: 1/1m}]
`
	got := strings.Join(mustRun(t, more, "", `192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "POST /b HTTP/1.1" 200 1`+"\nx\n").Notes, "\n")
	for _, want := range []string{
		"1 lines cannot be parsed", "header:X-Key: 1 decisions of limits are unknown; log the field X-Key as JSON ($http_x_key in nginx), or name it with --field header:X-Key=NAME",
		"json:/a: 1 decisions", "--field json:/a=NAME", "the duration of 1 requests", "the host of 1 requests", "route a matches the field X-App",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("notes\n%s\nwant %q", got, want)
		}
	}
	// Of a request that took less than a millisecond, the time of the decision is rounded to that of its end.
	brief := `{"level":"info","request_id":"A","method":"POST","host":"a","path":"/b","status":200,"client":"192.0.2.1","duration_ms":0.4,"upstream_ms":0.1,"route":"b","decided_at":"2026-11-22T11:05:47.001Z","time":"2026-11-22T11:05:47.001Z","message":"request"}` + "\n"
	if r := mustRun(t, more, "", brief); r.Requests != 1 || !r.own || r.Untimed != 0 {
		t.Errorf("a request of 0.4 ms of a Weir: %+v, own %v", r.Counts, r.own)
	}
	if got := mustRun(t, more, "", "x\n").Notes; len(got) != 1 || !strings.Contains(got[0], "is this an access log?") {
		t.Errorf("notes of what is no log: %q", got)
	}
}

func TestRun_Compare(t *testing.T) {
	stricter := strings.Replace(strings.Replace(file, "key: phone, rate: 1/1m", "key: phone, rate: 1/5m", 1), "name: ip,", "name: address,", 1)
	var all strings.Builder
	for i := range 100 {
		all.WriteString(nginxLine(float64(i*10), "POST", "/send", fmt.Sprint(i%10)))
	}
	r := mustRun(t, file, stricter, all.String())
	d := r.Differences()
	if d[1].Limit != "phone" || d[1].A.Refused >= d[1].B.Refused || d[1].B.Rates[0] != "1/5m" {
		t.Errorf("%+v; want more refused by the stricter limit", d[1])
	}
	if d[2].Limit != "ip" || d[2].B.There || d[3].Limit != "address" || d[3].A.There {
		t.Errorf("%+v; want ip in one and address in the other alone", d[2:])
	}
	var out strings.Builder
	r.Text(&out)
	for _, want := range []string{"RATE A", "1/5m", "none"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %q", out.String(), want)
		}
	}
}

// The page is whole, fetches nothing, runs nothing, and names no key.
func TestReport_Page(t *testing.T) {
	var all strings.Builder
	for i := range 200 {
		all.WriteString(nginxLine(float64(i), "POST", "/send", fmt.Sprint(13800138000+i%3)))
	}
	for _, compare := range []string{"", file} {
		var b strings.Builder
		if err := mustRun(t, file, compare, all.String()).HTML(&b); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for n := range root.Descendants() {
			if n.Type == html.ElementNode {
				found[n.Data]++
			}
			for _, a := range n.Attr {
				if slices.Contains([]string{"src", "href", "xlink:href", "action"}, a.Key) || strings.HasPrefix(a.Key, "on") {
					t.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
				}
			}
		}
		if found["script"]+found["link"]+found["img"] != 0 || found["svg"] < 2 || found["h1"] != 1 || found["main"] != 1 || found["table"] < 2 {
			t.Errorf("elements %v", found)
		}
		for _, want := range []string{"prefers-color-scheme: dark", "Content-Security-Policy", "phone=13****00", "at most"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		for _, never := range []string{"13800138000", "http://", "https://", "ZgotmplZ", "url("} {
			if strings.Contains(page, never) {
				t.Errorf("the page has %q", never)
			}
		}
	}
}

func TestRun_Ends(t *testing.T) {
	c := weirtest.Load(t, file)
	n, err := NewNames(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Logs: []Log{{"a", strings.NewReader("")}}, Names: n, Configs: []*config.Config{c}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want that it ends with its context", err)
	}
	if _, err := Run(t.Context(), Options{Logs: []Log{{"a.gz", strings.NewReader(compressed("abc")[:15])}}, Names: n, Configs: []*config.Config{c}}); err == nil || !strings.Contains(err.Error(), "a.gz: line 1: ") {
		t.Errorf("a broken archive: %v; want an error that names it", err)
	}
}

// A store in memory that may have been full is told of; Redis has no such bound.
func TestRun_TellsWhenMemoryMayHaveBeenFull(t *testing.T) {
	for store, told := range map[string]bool{"memory": true, "redis": false} {
		c := weirtest.Load(t, "store: "+store+"\n"+file)
		r := &Report{Counts: Counts{LogCounts: view.LogCounts{Lines: 1, Requests: 1}}, Result: proxy.ReplayTally{Keys: manyKeys + 1}}
		if got := strings.Join(r.notes(Options{Configs: []*config.Config{c}}, nil), "\n"); strings.Contains(got, "share counts") != told {
			t.Errorf("store: %s: notes %q", store, got)
		}
	}
}

// What happened to a request at its upstream is in Weir's own log, not in the status of the answer alone.
func TestRun_OwnLogHasFailuresAndRefunds(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/asked", "/both":
			w.Header().Set("X-Refund", "1")
		case "/reset", "/doubtful":
			panic(http.ErrAbortHandler)
		}
	}))
	defer upstream.Close()
	var routes strings.Builder
	for _, r := range []struct{ name, to, refund, count string }{
		{"asked", upstream.URL, "refund_on: {header: X-Refund}, ", ""},
		{"both", upstream.URL, "refund_on: {header: X-Refund}, ", ", count: {status: [2xx]}"},
		{"kept", upstream.URL, "refund_on: {header: X-Refund}, ", ", count: {status: [2xx]}"},
		{"status", "http://127.0.0.1:1", "refund_on: {status: [5xx]}, ", ""},
		{"connect", "http://127.0.0.1:1", "refund_on: {errors: [connect]}, ", ""},
		{"reset", upstream.URL, "refund_on: {errors: [reset]}, ", ""},
		{"other", upstream.URL, "refund_on: {status: [5xx], errors: [timeout]}, ", ""},
		{"doubtful", upstream.URL, "", ", count: {status: [4xx]}"},
		{"unprocessed", "http://127.0.0.1:1", "", ", count: {status: [4xx]}"},
	} {
		fmt.Fprintf(&routes, "  - {name: %s, match: {path: /%s}, upstream: %q, %slimits: [{name: l, key: global, rate: 3/1h%s}]}\n", r.name, r.name, r.to, r.refund, r.count)
	}
	own := "routes:\n" + routes.String()
	var log bytes.Buffer
	ended := time.Unix(1_795_345_547, 0)
	stamp := zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) { // one request after the other
		ended = ended.Add(time.Second)
		e.Str("time", ended.UTC().Format(time.RFC3339))
	})
	p, err := proxy.New(t.Context(), proxy.Options{
		Config: weirtest.Load(t, own), Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&log).Hook(stamp),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, name := range []string{"asked", "both", "kept", "status", "connect", "reset", "other", "doubtful", "unprocessed"} {
		for range 6 {
			weirtest.Exchange(p, httptest.NewRequest("POST", "http://a.example/"+name, nil))
		}
	}
	served := p.Counts()
	for _, rt := range mustRun(t, own, "", log.String()).Result.Routes {
		if want := served[proxy.Series{Route: rt.Name, Result: "refused"}]; rt.Refused != want {
			t.Errorf("%s: %d refused; served %d", rt.Name, rt.Refused, want)
		}
	}
}

// What was redirected to HTTPS, and what operators had closed, passes no limit.
func TestRun_OwnLogOfWhatReachedNoLimit(t *testing.T) {
	const own = "listen: {redirect_https: true}\nclient_ip: {trusted_proxies: [10.0.0.1]}\nupstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo, limits: [{key: client_ip, rate: 1/1h}]}]\n"
	var log strings.Builder
	for second, fields := range []string{
		`"route":"none","status":308,"error":"redirected to HTTPS"`,
		`"route":"a","status":503,"error":"under maintenance"`,
		`"route":"a","status":403,"list":"banned networks","error":"denied by a list: an operator has banned the network 192.0.2.0/24"`,
		`"route":"a","status":200,"upstream":"echo"`,
	} {
		fmt.Fprintf(&log, `{"level":"info","request_id":"A","method":"GET","host":"a.example","path":"/a","duration_ms":1,"client":"192.0.2.1",%s,"time":"2026-11-22T11:05:4%d.000Z","message":"request"}`+"\n", fields, second)
	}
	got := mustRun(t, own, "", log.String()).Result
	if len(got.Unmatched) != 1 || got.Passed != 1 || got.Refused != 0 || len(got.Routes) != 1 || got.Routes[0].Requests != 3 || len(got.Routes[0].Rejected) != 2 {
		t.Errorf("%+v; want 1 of 4 passed, 1 redirected, 2 rejected", got)
	}
}

// The log does not show by which fields, parameters or scheme a route was matched, but the route; nor is what was refused
// before the limits of a route that answers by itself an answer of it.
func TestRun_OwnLogFindsItsRoutes(t *testing.T) {
	const own = `
upstreams: {demo: echo}
routes:
  - {name: all, match: {path: /a}, upstream: demo, limits: [{name: l, key: client_ip, rate: 1/1h}]}
  - {name: header, match: {path: /a, headers: {X-A: b}}, upstream: demo, limits: [{name: l, key: client_ip, rate: 1/1h}]}
  - {name: any, match: {path: /a, headers: {X-Any: "*"}}, upstream: demo, limits: [{name: l, key: "header:X-Any", rate: 1/1h}]}
  - {name: query, match: {path: /a, query: {q: "a b", r: "*"}}, upstream: demo, limits: [{name: l, key: client_ip, rate: 1/1h}]}
  - {name: scheme, match: {path: /a, scheme: http}, upstream: demo, limits: [{name: l, key: client_ip, rate: 1/1h}]}
  - {name: gone, match: {path: /gone}, respond: {status: 410}, limits: [{name: l, key: "header:X-A", rate: 1/1h}]}
  - {name: moved, match: {path: /moved}, redirect: {to: "https://b.example"}, limits: [{name: l, key: "header:X-A", rate: 1/1h}]}
`
	var log strings.Builder
	for second, fields := range []string{
		`"route":"all","path":"/a","status":200,"upstream":"echo"`,
		`"route":"header","path":"/a","status":200,"upstream":"echo"`,
		`"route":"any","path":"/a","status":200,"upstream":"echo","keys":"header:X-Any=AAAAAAAA"`,
		`"route":"any","path":"/a","status":200,"upstream":"echo","keys":"header:X-Any=AAAAAAAB"`,
		`"route":"query","path":"/a","status":200,"upstream":"echo"`,
		`"route":"scheme","path":"/a","status":200,"upstream":"echo"`,
		`"route":"gone","path":"/gone","status":400,"error":"header:X-A: key missing"`,
		`"route":"gone","path":"/gone","status":410,"keys":"header:X-A=AAAAAAAA"`,
		`"route":"moved","path":"/moved","status":400,"error":"header:X-A: key missing"`,
		`"route":"moved","path":"/moved","status":308,"keys":"header:X-A=AAAAAAAA"`,
	} {
		fmt.Fprintf(&log, `{"level":"info","request_id":"A","method":"GET","host":"a.example","duration_ms":1,"client":"192.0.2.1",%s,"time":"2026-11-22T11:05:4%d.000Z","message":"request"}`+"\n", fields, second)
	}
	got := map[string]string{}
	for _, rt := range mustRun(t, own, "", log.String()).Result.Routes {
		got[rt.Name] = fmt.Sprint(rt.Passed, rt.Refused, len(rt.Rejected))
	}
	want := map[string]string{"all": "1 0 0", "header": "1 0 0", "any": "2 0 0", "query": "1 0 0", "scheme": "1 0 0", "gone": "1 0 1", "moved": "1 0 1"}
	if !maps.Equal(got, want) {
		t.Errorf("passed, refused, rejected: %v, want %v", got, want)
	}
}
