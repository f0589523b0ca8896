package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// replayedFile has every kind of limit, and all that an outcome changes.
const replayedFile = `
privacy: {hash_secret: 0123456789abcdef}
defaults: {new_keys: 200/1m}
keys:
  phone: {from: header:X-Phone, sensitive: true}
  number: {from: json:/user/phone}
lists:
  stolen: {key: phone, values: ["13800000007"], action: deny}
  office: {key: client_ip, values: [192.0.2.7], action: bypass}
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    lists: [stolen, office]
    refund_on: {status: [5xx], errors: [timeout]}
    limits:
      - {name: phone, key: phone, rates: [1/10s, 4/5m], penalty: {ban: 30s, after: 2}}
      - {name: ip, key: client_ip, rate: 10/1m, algorithm: sliding_window}
      - {name: all, key: global, rate: 30/1m, mode: shadow, algorithm: gcra, burst: 3}
      - {name: fan, key: client_ip, distinct: phone, rate: 9/1m}
  - name: verify
    match: {methods: [POST], path: "/verify/{id}"}
    upstream: demo
    limits:
      - {name: wrong, key: phone, rate: 2/30s, count: {status: [4xx]}, algorithm: sliding_log}
      - {name: code, key: path:id, rate: 3/20s, algorithm: fixed_window}
  - name: call
    match: {methods: [POST], path: /call}
    upstream: demo
    limits:
      - {name: backoff, key: phone, cooldown: [5s, 20s, 1m], reset_on: {route: verify, status: [2xx]}}
      - {name: unused, key: client_ip, rates: [3/10s, 6/1m], return_on: {route: verify, status: [2xx], key: phone}}
  - name: hold
    match: {path: /hold}
    upstream: demo
    limits: [{name: inflight, key: client_ip, concurrent: 2}, {name: q, key: query:q, rate: 10/1m, cost: "query:n", max_cost: 5}]
  - name: wait
    match: {path: /wait}
    upstream: demo
    limits: [{name: smooth, key: client_ip, rate: 2/1s, wait: 2500ms, max_waiting: 3}]
  - name: body
    match: {methods: [POST], path: /body}
    upstream: demo
    limits: [{name: ip, key: client_ip, rate: 8/1m}, {name: number, key: number, rate: 2/1m}]
  - {name: fixed, match: {path: /fixed}, respond: {status: 503}, refund_on: {status: [504]}, limits: [{name: f, key: client_ip, rate: 5/1m}]}
`

// sampleTraffic is requests for replayedFile, no two at one instant.
func sampleTraffic(n int, start time.Time) []LoggedRequest {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	at := start
	var all []LoggedRequest
	for i := range n {
		at = at.Add(time.Duration(random.IntN(80)) * time.Millisecond).Truncate(time.Millisecond).Add(time.Duration(1+i%997) * time.Microsecond)
		if len(all) > 0 && !at.After(all[len(all)-1].At) {
			at = at.Add(time.Millisecond)
		}
		q := LoggedRequest{
			At: at, Method: "POST", Host: "example.com", Client: netip.AddrFrom4([4]byte{192, 0, 2, []byte{1, 2, 3, 7}[random.IntN(4)]}),
			Status: []int{200, 200, 200, 401, 503, 504, 499}[random.IntN(7)], Took: time.Duration(random.IntN(4)) * 700 * time.Millisecond,
		}
		phone := fmt.Sprintf("138000000%02d", random.IntN(30))
		q.Fields = []LoggedField{{key.Origin{Source: key.Header, Name: "X-Phone"}, phone}, {key.Origin{Source: key.JSON, Name: "/user/phone"}, ""}}
		switch q.Target = pick("/send", "/send", "/send", "/verify/a", "/verify/b", "/call", "/hold?q=a&n=3", "/hold?q=b", "/wait", "/wait", "/wait", "/body", "/fixed", "/none", "/send/../send", "/hold?q=a&q=b"); q.Target {
		case "/body":
			q.Fields[1].Value = phone
		case "/send":
			if random.IntN(20) == 0 {
				q.Fields[0].Value = "" // not sent
			}
		case "/hold?q=b":
			q.Took = time.Duration(random.IntN(80)) * time.Second // longer than a lease
		}
		all = append(all, q)
	}
	return all
}

// A knownOutcome is the downstream of a request whose outcome is known beforehand.
type knownOutcome struct {
	x       *exchange
	q       LoggedRequest
	release func(flush func())
}

func (k *knownOutcome) respond(r respond.Response) {
	k.x.response.status = r.Status
	k.end()
}
func (k *knownOutcome) beforeEnd(release func(flush func())) { k.release = release }
func (k *knownOutcome) end() {
	if k.release != nil {
		k.release(func() {})
	}
}

func (k *knownOutcome) forward(_ *upstream.Pool, r *upstream.Request) upstream.Result {
	time.Sleep(k.q.Took)
	if k.q.Status != 499 {
		r.OnHeader(k.q.Status, &http1.Fields{})
	}
	k.end()
	switch k.q.Status {
	case 499:
		return upstream.Result{Kind: upstream.ClientGone, Target: "t", HeaderSent: true}
	case 504:
		return upstream.Result{Kind: upstream.Timeout, Status: 504, Target: "t", HeaderSent: true}
	}
	return upstream.Result{Status: k.q.Status, Target: "t"}
}

// serveLogged has p serve a request as if it came over HTTP.
func serveLogged(p *Proxy, q LoggedRequest) { serveLoggedUntil(context.Background(), p, q) }

// serveLoggedUntil is serveLogged for a client that leaves when ctx is done.
func serveLoggedUntil(ctx context.Context, p *Proxy, q LoggedRequest) {
	x := p.exchanges.Get().(*exchange)
	header := http.Header{}
	body := ""
	for _, f := range q.Fields {
		switch {
		case f.Value == "":
		case f.Origin.Source == key.Header:
			header.Set(f.Origin.Name, f.Value)
		default:
			header.Set("Content-Type", "application/json")
			body = `{"user":{"phone":"` + f.Value + `"}}`
		}
	}
	x.request.Method, x.request.HostField, x.request.Proto, x.in.scheme, x.request.RequestTarget = q.Method, q.Host, "HTTP/1.1", "http", q.Target
	x.in.header, x.in.length, x.in.body, x.in.peer = header, int64(len(body)), literalBody(body), netip.AddrPortFrom(q.Client, 1)
	defer p.finish(ctx, x)
	p.serve(ctx, x, &knownOutcome{x: x, q: q})
}

// A Replay counts what a Proxy counts that is asked the same at the same times, with
// requests under way side by side, waiting, being renewed and given back.
func TestReplay_CountsAsServingDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, replayedFile, bare)
		r, err := NewReplay(p.current.Load().config, ReplayOptions{Top: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()

		all := sampleTraffic(5000, time.Now().Add(time.Second))
		var under sync.WaitGroup
		for _, q := range all {
			time.Sleep(time.Until(q.At))
			under.Go(func() { serveLogged(p.Proxy, q) })
			r.Request(&q)
		}
		under.Wait()
		compareCounts(t, r.Finish(), p.Counts())
	})
}

// requestsOf returns the number of requests of a route, whatever their outcome.
func requestsOf(counts map[Series]int64, route string) (n int64) {
	for s, one := range counts {
		if s.Route == route && s.Limit == "" {
			n += one
		}
	}
	return n
}

// compareCounts compares what was replayed with the figures of a proxy.
func compareCounts(t *testing.T, got ReplayTally, want map[Series]int64) {
	t.Helper()
	seen := map[string]bool{}
	for _, rt := range got.Routes {
		if n := requestsOf(want, rt.Name); rt.Requests != n {
			t.Errorf("%s: %d requests; served %d", rt.Name, rt.Requests, n)
		}
		for _, l := range rt.Limits {
			for result, n := range map[string]int64{limit.Allowed: l.Passed, limit.Refused: l.Refused, limit.ShadowRefused: l.Shadowed} {
				if served := want[Series{rt.Name, l.Name, result}]; n != served {
					t.Errorf("%s.%s: %d %s; served %d", rt.Name, l.Name, n, result, served)
				}
			}
			seen[rt.Name+"."+l.Name] = l.Passed > 0 && l.Refused+l.Shadowed > 0
		}
	}
	for name, both := range seen {
		if !both {
			t.Errorf("%s never passed or never refused: the test shows nothing of it", name)
		}
	}
	var unmatched int64
	for _, n := range got.Unmatched {
		unmatched += n
	}
	if n := requestsOf(want, "none"); unmatched != n || n == 0 {
		t.Errorf("%d requests without a route; served %d", unmatched, n)
	}
}

func TestReplay_TellsWhatHappened(t *testing.T) {
	got := replay(t, replayedFile, sampleTraffic(5000, time.Unix(1_800_000_000, 0))...)
	send := got.Routes[0]
	if send.Listed["stolen"] == 0 || send.Listed["office"] == 0 || send.Exempt != send.Listed["office"] || send.Returned == 0 || send.Banned == 0 || send.Rejected["header:X-Phone: key missing"] == 0 {
		t.Errorf("send: listed %v, rejected %v, %d exempt, %d returned, %d bans", send.Listed, send.Rejected, send.Exempt, send.Returned, send.Banned)
	}
	if top := send.Limits[0].Top; len(top) != 3 || !strings.HasPrefix(top[0].Key, "phone=") || strings.Contains(top[0].Key, "138000000") || top[0].Refused < top[2].Refused {
		t.Errorf("top keys of phone: %v; want three, masked, the most first", top)
	}
	var series int64
	for _, n := range send.Limits[0].Series.Refused {
		series += n
	}
	if series != send.Limits[0].Refused || len(send.Limits[0].Series.Refused) > maxSteps || got.Step != time.Second {
		t.Errorf("the series has %d refusals in steps of %v; want %d", series, got.Step, send.Limits[0].Refused)
	}
	for _, rt := range got.Routes {
		if rt.Name == "wait" && rt.Waited == 0 {
			t.Error("nobody waited")
		}
	}
}

// replay replays requests by a file.
func replay(t *testing.T, yaml string, all ...LoggedRequest) ReplayTally {
	t.Helper()
	c, err := config.LoadText("weir.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReplay(c, ReplayOptions{Top: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, q := range all {
		r.Request(&q)
	}
	return r.Finish()
}

// What a log does not tell is no missing key: the limit is left out, and said to be.
func TestReplay_KeysThatTheLogDoesNotTell(t *testing.T) {
	q := LoggedRequest{At: time.Unix(1_800_000_000, 0), Method: "POST", Host: "example.com", Target: "/send", Client: netip.MustParseAddr("192.0.2.1"), Status: 200}
	got := replay(t, replayedFile, q, q, q, q, q)
	send := got.Routes[0]
	phone, ip, fan := send.Limits[0], send.Limits[1], send.Limits[3]
	if phone.Unknown != 5 || len(phone.Missing) != 1 || phone.Missing[0] != "header:X-Phone" || phone.Passed+phone.Refused+phone.Skipped != 0 {
		t.Errorf("phone: %+v; want five unknown", phone)
	}
	if ip.Passed != 5 || ip.Unknown != 0 || fan.Unknown != 5 || send.Unlisted != 5 || send.Passed != 5 {
		t.Errorf("ip %+v, fan %+v, route %+v; want that what is known counts", ip, fan, send)
	}

	// Of what a key consists, what the log has is not missing.
	const joined = `
keys: {a: client_ip, p: "header:X-Phone", q: "query:q", pair: {join: [a, p, q]}}
routes:
  - match: {path: /*}
    upstream: echo
    usage: openai
    limits:
      - {name: pair, key: pair, rate: 1/1h}
      - {name: tokens, key: a, rate: 9/1h, cost: {reserve: 5, input: bytes/4}, max_cost: 9}
`
	q.Redacted = true
	pair := replay(t, joined, q, q).Routes[0].Limits
	if got := strings.Join(pair[0].Missing, " "); got != "header:X-Phone query:q" || pair[0].Unknown != 2 {
		t.Errorf("of three parts %q are missing of %d requests; want the two that the log lacks", got, pair[0].Unknown)
	}
	if got := strings.Join(pair[1].Missing, " "); got != "body" || pair[1].Unknown != 2 {
		t.Errorf("of what a request costs %q is missing of %d requests; want the body", got, pair[1].Unknown)
	}

	q.Client, q.Redacted, q.Target = netip.Addr{}, true, "/verify/*"
	verify := replay(t, replayedFile, q).Routes[0]
	if verify.Limits[1].Unknown != 1 || verify.Limits[1].Missing[0] != "path:id" {
		t.Errorf("a parameter that the log hides: %+v; want it unknown", verify.Limits[1])
	}
	q.Target = "/hold"
	hold := replay(t, replayedFile, q).Routes[0]
	if hold.Limits[0].Missing[0] != "client_ip" || hold.Limits[1].Missing[0] != "query:q" {
		t.Errorf("address and query that the log hides: %+v", hold.Limits)
	}
	q.Fields = []LoggedField{{key.Origin{Source: key.Query, Name: "q"}, "a"}, {key.Origin{Source: key.Query, Name: "n"}, "5"}}
	if hold := replay(t, replayedFile, q, q, q).Routes[0]; hold.Limits[1].Passed != 2 || hold.Limits[1].Refused != 1 {
		t.Errorf("a query of which the log tells what is asked for: %+v; want two of cost 5 to pass", hold.Limits[1])
	}
}

// Time never goes back, whatever the log says.
func TestReplay_LateRequestsComeAtOnce(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	q := LoggedRequest{At: at, Method: "GET", Target: "/fixed", Client: netip.MustParseAddr("192.0.2.1")}
	late := q
	late.At = at.Add(-time.Hour)
	got := replay(t, replayedFile, q, late)
	if got.To.Before(at) || got.Requests != 2 {
		t.Errorf("from %v to %v", got.From, got.To)
	}
}

func TestTopKeys_TooMany(t *testing.T) {
	l := &limitTally{top: limiter.NewSketch[string](maxTopKeys)}
	refuse := func(k, label string) {
		if made := l.top.Observe(limiter.KeyOf(k)); made != nil {
			*made = label
		}
	}
	for i := range 3 * maxTopKeys {
		refuse(fmt.Sprint(i), "once")
		if i%10 == 0 {
			refuse("often", "often")
		}
	}
	got, want := l.result(2), int64(3*maxTopKeys/10+1)
	if first := got.Top[0]; first.Key != "often" || first.Refused > want || first.Refused+got.TopError < want || len(got.Top) != 2 {
		t.Errorf("%+v, too low by %d; want often with %d", got.Top, got.TopError, want)
	}
}

// However the body of a replayed request is made, it says what its fields say.
func TestLoggedBody(t *testing.T) {
	field := func(source key.Source, name, value string) LoggedField {
		return LoggedField{Origin: key.Origin{Source: source, Name: name}, Value: value}
	}
	var body literalBody
	for _, c := range []struct {
		fields []LoggedField
		want   string // as JSON, unless it is a form
	}{
		{nil, ""},
		{[]LoggedField{field(key.JSON, "/phone", ""), field(key.Header, "X-Phone", "1")}, ""},
		{[]LoggedField{field(key.JSON, "/phone", "+8613800138000")}, `{"phone":"+8613800138000"}`},
		{[]LoggedField{field(key.JSON, "/phone", "1"), field(key.JSON, "/user", "ann")}, `{"phone":"1","user":"ann"}`},
		{[]LoggedField{field(key.JSON, "/phone", "1"), field(key.JSON, "/phone", "2"), field(key.JSON, "/phone", "")}, `{"phone":"2"}`},
		{[]LoggedField{field(key.JSON, "/name", "a\"b\\c\n<é\x7f")}, "{\"name\":\"a\\\"b\\\\c\\n<é\x7f\"}"},
		{[]LoggedField{field(key.JSON, "/ü", "1")}, `{"ü":"1"}`},
		{[]LoggedField{field(key.JSON, "/", "1")}, `{"":"1"}`},
		{[]LoggedField{field(key.JSON, "/user/phone", "1"), field(key.JSON, "/user/id", "2"), field(key.JSON, "/a~1b", "3")}, `{"user":{"phone":"1","id":"2"},"a/b":"3"}`},
		{[]LoggedField{field(key.Form, "phone", "+86 1"), field(key.Form, "a", "b")}, "a=b&phone=%2B86+1"},
		{[]LoggedField{field(key.Form, "phone", "1"), field(key.JSON, "/phone", "2")}, `{"phone":"2"}`},
	} {
		body = body.build(c.fields) // of the bytes of the one before
		var got, want any
		if c.want == "" || c.want[0] != '{' {
			got, want = string(body), c.want
		} else if err := json.Unmarshal(body, &got); err != nil || json.Unmarshal([]byte(c.want), &want) != nil {
			t.Errorf("%v: %q: %v", c.fields, body, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %q; want %s", c.fields, body, c.want)
		}
	}
}
