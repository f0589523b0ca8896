package proxy

import (
	"cmp"
	"fmt"
	"github.com/redis/go-redis/v9"
	"github.com/weir-proxy/weir/test/redistest"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A stream says its usage if the route has requests ask for it, over HTTP/1.1 and HTTP/2, and whatever the client asks for;
// and what is said is read from both. A body that cannot be made so is refused: for lack of memory, and because it is read by
// fewer servers than may read it.
func TestUsage_IsEnsured(t *testing.T) {
	var got string
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if got = string(body); err != nil || r.ContentLength >= 0 && r.ContentLength != int64(len(body)) {
			t.Errorf("%d bytes announced, %d read: %v", r.ContentLength, len(body), err)
		}
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7}}`)
	}
	for _, protocol := range []string{"http1", "h2c"} {
		p := newProxy(t, "listen: {max_buffered: 1MiB}\nupstreams: {model: "+startVersion(t, protocol, answer)+"}\n"+
			strings.Replace(tokensYAML("model", tokensLimit), "usage: openai", "usage: {format: openai, ensure_usage: true}, body: {max: 1MiB}", 1))
		long := `{"messages":["` + strings.Repeat("x", 350<<10) + `"],"stream":true}`
		for sent, want := range map[string]string{
			`{"messages":[],"stream":true}`:                                          `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
			`{"messages":[],"stream":true,"stream_options":{"include_usage":false}}`: `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
			`{"messages":[]}`:                    `{"messages":[]}`,
			long:                                 "503", // three more of them are more than seven eighths of max_buffered
			`{"messages":[],"stream":true} more`: "400",
		} {
			status, _ := strconv.Atoi(want)
			p.chat(cmp.Or(status, 200), fmt.Sprint("e", len(sent)), sent)
			if status > 0 {
				continue
			}
			if got != want {
				t.Errorf("%s: %.80s was sent as %.80s; want %.80s", protocol, sent, got, want)
			}
			if used := p.usedTokens(fmt.Sprint("e", len(sent))); used != 7 {
				t.Errorf("%s: %d used; want 7, as the response says", protocol, used)
			}
			if left := p.buffers.InUse(); left != 0 {
				t.Errorf("%s: %d bytes are held after the request", protocol, left)
			}
		}
	}
}

// The length of a prompt is measured if it is not announced; a request that no limit counts is in no metric.
func TestUsage_UnknownLengthAndExempt(t *testing.T) {
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	p := newProxy(t, "lists: {ours: {key: tenant, values: [us], action: bypass}}\n"+
		strings.Replace(tokensYAML(up, `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: 10, input: bytes/2}}`), "usage: openai", "usage: openai, lists: [ours]", 1))
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/chat", io.MultiReader(strings.NewReader(`{"prompt": `), strings.NewReader(`"abc"}`)))
	r.ContentLength = -1
	r.Header = http.Header{"X-Tenant": {"a"}, "Content-Type": {"application/json"}}
	p.ServeHTTP(httptest.NewRecorder(), r)
	if got := p.usedTokens("a"); got != 10+int64(len(`{"prompt": "abc"}`)+1)/2 {
		t.Errorf("%d reserved for a body of unknown length", got)
	}
	p.chat(200, "us", `{}`)
	p.counted(1, p.metrics.Unsettled.WithLabelValues("chat", "tokens", "absent"))
}

// What a key has left may be less than a request costs: its verdict says so, where a request has a cost.
func TestUsage_VerdictSaysWhatMayBeSpent(t *testing.T) {
	p := newProxy(t, tokensYAML("echo", `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: 10}}, {name: spend, key: tenant, budget: [50/1d], price: models, max_cost: 1000, cost: {reserve: 100}}, {name: calls, key: tenant, rate: 5/1h}`))
	s, err := p.standing("tenant=a")
	if want := "; chat.tokens refuses what costs more than 1000; chat.spend refuses what costs more than 50 USD"; err != nil || !strings.HasSuffix(s.Verdict().Text, " has permits left"+want) {
		t.Errorf("%q, %v; want %s", s.Verdict().Text, err, want)
	}
}

// Over HTTP/2 the body of unknown length comes behind the header, while it is decided what to reserve.
func TestUsage_UnknownLengthOverHTTP2(t *testing.T) {
	yaml := "listen: {h2c: true, timeouts: {body: 2s}}\n" + strings.Replace(tokensYAML("echo", `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: 10, input: bytes}}`), "usage: openai", "usage: {total: bytes}", 1)
	s := startServer(t, yaml).speaks()
	s.begins(1, request("POST", "/chat", "x-tenant", "a", "content-type", "application/json")...)
	s.asks(3, request("GET", "/other")...)
	s.wants(3, "404")
	if err := s.WriteData(1, true, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	s.wants(1, "200")
}

// A request counts once for each limit that has reserved permits for it: it is settled, or keeps them by one reason, unless
// they are refunded.
func TestUsage_CountsEachRequestOnce(t *testing.T) {
	answer := ""
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case answer == "error":
			w.WriteHeader(503)
		case answer == "encoded":
			w.Header().Set("Content-Encoding", "gzip")
		case strings.HasPrefix(answer, "data"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, answer+"\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, answer)
	})
	for _, c := range []struct {
		answer, want string
		status       int
	}{
		{`{"usage":{"total_tokens":1,"prompt_tokens":60}}`, "refunded=40 reserved=100 settled=1", 200},
		{`{"usage":{"prompt_tokens":100}}`, "reserved=100 settled=1", 200},
		{`{"usage":{"prompt_tokens":250}}`, "charged=150 reserved=100 settled=1", 200},
		{`{}`, "absent=1", 200},
		{`{"usage":{"prompt_tokens_details":{"cached_tokens":250}}}`, "absent=1", 200},
		{"encoded", "encoded=1", 200},
		{"error", "error=1", 503},
		{"data: {}", "cut=1", 200},
		{`data: {"usage":{"prompt_tokens":60}}`, "cut=1", 200},
		{`data: {"usage":{"prompt_tokens":250}}`, "charged=150 reserved=100 settled=1", 200},
	} {
		answer = c.answer
		p := newProxy(t, tokensYAML(up, tokensLimit+`, {name: kind, key: tenant, rate: 1000/1h, count: {status: 2xx}, max_cost: 900, cost: {reserve: 100}}, {name: plain, key: tenant, rate: 5/1h}`))
		p.chat(c.status, "a", `{}`)
		var got, refunded []string
		for series, n := range p.Counts() {
			switch text := fmt.Sprintf("%s=%d", series.Result, n); {
			case series.Limit == "tokens" && n > 0 && series.Result != "allowed":
				got = append(got, text)
			case series.Limit == "kind" && n > 0 && series.Result != "allowed":
				refunded = append(refunded, text)
			case series.Limit == "plain" && series.Result != "allowed":
				t.Errorf("%s: a limit whose cost is known has %s", c.answer, text)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s; want %s", c.answer, text, c.want)
		}
		if (c.status == 200) != (len(refunded) > 0) {
			t.Errorf("%s: a limit that does not count 503 has %v", c.answer, refunded)
		}
	}
}

// A log has what a Replay needs to settle with other estimates and weights.
func TestUsage_IsReplayed(t *testing.T) {
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":30,"completion_tokens":20}}`)
	})
	config := func(cost string) string {
		return tokensYAML(up, `{name: tokens, key: tenant, rate: 100/1h, max_cost: 100, cost: `+cost+`}, {name: spend, key: tenant, budget: [9/1d], price: models, max_cost: 1000, cost: {reserve: 20}}`)
	}
	p := newProxy(t, config("{reserve: [json:/max_tokens, 20]}"))
	p.chat(200, "a", `{"model": "gpt-4o", "max_tokens": 60}`)
	p.chat(200, "a", `{"model": "gpt-4o"}`)
	p.chat(429, "a", `{"model": "gpt-4o", "max_tokens": 60}`)
	replays := func(yaml string, limit int) string {
		var all []LoggedRequest
		for i, l := range p.lines("request") {
			all = append(all, LoggedRequest{
				At: time.Unix(1_800_000_000+int64(i), 0), Method: "POST", Target: "/chat", Client: netip.MustParseAddr("192.0.2.1"), Own: true, Route: "chat", Keys: l["keys"].(string),
			})
		}
		got := replay(t, yaml, all...).Routes[0]
		if got.Limits[1].Unknown > 0 {
			t.Errorf("with %s: %v is missing", yaml, got.Limits[1].Missing)
		}
		return fmt.Sprintf("%d passed, %d refused", got.Limits[limit].Passed, got.Limits[limit].Refused)
	}
	for cost, want := range map[string]string{
		"{reserve: [json:/max_tokens, 20]}":               "2 passed, 1 refused",
		"{reserve: [json:/max_tokens, 100]}":              "1 passed, 2 refused", // 50 are left
		"{reserve: 1}":                                    "2 passed, 1 refused",
		"{reserve: 1, settle: {input: 0.5}}":              "3 passed, 0 refused", // 30 are left, and what the request asks does not count
		"{reserve: 1, settle: {input: 0}}":                "3 passed, 0 refused",
		"{reserve: 1, settle: {input: 2}}":                "2 passed, 1 refused",
		"{reserve: [json:/max_tokens, 40], input: bytes}": "1 passed, 2 refused",
	} {
		if got := replays(config(cost), 0); got != want {
			t.Errorf("with %s: %s; want %s", cost, got, want)
		}
	}
	for budget, want := range map[string]string{"0.0005": "2 passed, 1 refused", "0.0003": "1 passed, 2 refused"} { // 0.000275 are spent by each
		if got := replays(strings.Replace(config("{reserve: 1, settle: {input: 0}}"), "[9/1d]", "["+budget+"/1d]", 1), 1); got != want {
			t.Errorf("with a budget of %s: %s; want %s", budget, got, want)
		}
	}
}

// What explain says of a limit that reserves is that it does, and of a budget at which price.
func TestUsage_IsExplained(t *testing.T) {
	p := newProxy(t, strings.Replace(tokensYAML("echo", `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: 300}}, {name: spend, key: tenant, budget: [1/1d], price: models, max_cost: 1000, cost: {reserve: 200}}`), `key: "json:/model"`, `key: "header:X-Model"`, 1))
	limits := p.explains("POST", "/chat", "X-Tenant: a", "X-Model: gpt-4o-x").Limits
	for i, want := range []string{
		"300, reserved until the response says what was used",
		"0.002 USD, reserved until the response says what was used; 10 USD for a million tokens of an answer: gpt-4o, line 1 of prices.models",
	} {
		if got := limits[i].Price; got != want {
			t.Errorf("%s: %q; want %q", limits[i].Name, got, want)
		}
	}
}

// A limit that Java programs share is settled downwards only.
func TestUsage_SharedWithRedisson(t *testing.T) {
	said := ""
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said) })
	addr := redistest.Start(t).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	p := newProxy(t, tokensYAML(up, `{name: tokens, key: tenant, rate: 100/1h, redisson_name: "java:{key}", max_cost: 90, cost: {reserve: [json:/max_tokens]}}`),
		func(o *Options) { o.Store = redisStore(t, addr) })
	said = `{"usage":{"prompt_tokens":10}}`
	p.chat(200, "a", `{"max_tokens": 60}`)
	p.chat(200, "a", `{"max_tokens": 80}`) // 90 were left
	said = `{"usage":{"prompt_tokens":500}}`
	p.chat(200, "a", `{"max_tokens": 30}`) // 80 were left, and 50 are
	p.chat(200, "a", `{"max_tokens": 50}`)
	p.chat(429, "a", `{"max_tokens": 1}`)
	if keys, err := client.ZCard(t.Context(), "{java:a}:permits").Result(); err != nil || keys != 4 {
		t.Errorf("%d entries that Java reads, %v; want 4", keys, err)
	}
}

// While the store is away what is missing is charged to the share of the node, and told to the store afterwards.
func TestUsage_InAnOutage(t *testing.T) {
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":800}}`)
	})
	server, store := breakingStore(t, time.Millisecond)
	p := newProxy(t, "store: redis\nredis: {timeout: 5s}\n"+tokensYAML(up, tokensLimit), func(o *Options) { o.Store = store })
	server.Kill()
	p.until(func() bool { p.chat(200, "first", `{"max_tokens": 1}`); return !store.Available() })
	p.chat(200, "a", `{}`)
	p.chat(429, "a", `{"max_tokens": 300}`)
	server.Restart()
	p.until(store.Available)
	p.chat(429, "a", `{"max_tokens": 300}`)
	if got := p.usedTokens("a"); got != 800 {
		t.Errorf("%d used; want 800", got)
	}
}
