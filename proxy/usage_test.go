package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/weirtest"
)

// tokensYAML is a route to a language model, whose limit has these rates and this cost.
func tokensYAML(upstream, limits string) string {
	return "keys: {tenant: {from: \"header:X-Tenant\"}}\nprices: {models: {key: \"json:/model\", unit: USD, decimals: 6, rows: [\"gpt-4o,2.5,1.25,10\", \"gpt-4o-mini,0.15,0.075,0.6\", \"*,20,20,80\"]}}\nroutes:\n  - {name: chat, match: {path: /chat}, upstream: '" + upstream + "', usage: openai, limits: [" + limits + "]}\n"
}

const tokensLimit = `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: [json:/max_completion_tokens, json:/max_tokens, 100]}}`

// usedTokens is what a limit of a tenant has counted.
func (p *testProxy) usedTokens(tenant string) int64 {
	p.Helper()
	w := p.current.Load().routes[0].Windows[0]
	in, err := p.admitter.Store.Inspect(p.Context(), []limiter.Claim{{Limit: &w.Limit, Key: p.current.Load().config.Privacy.Hash([]string{"tenant", tenant}), Cost: 1}})
	if err != nil {
		p.Fatal(err)
	}
	return in.Statuses[0].Used
}

// chat sends a request of a tenant with this body.
func (p *testProxy) chat(want int, tenant, body string) *httptest.ResponseRecorder {
	p.Helper()
	r := httptest.NewRequestWithContext(p.Context(), "POST", "/chat", strings.NewReader(body))
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	rec := httptest.NewRecorder()
	p.ServeHTTP(rec, r)
	p.until(func() bool { return p.settling.Load() == 0 }) // which follows the response
	if rec.Code != want {
		p.Errorf("%s: %s: %d %s; want %d", tenant, body, rec.Code, rec.Body, want)
	}
	return rec
}

// What is taken before a request is what it may use, and afterwards what it has used: less comes back, and more is charged
// whatever is left, up to max_cost. A response that does not say it keeps what was reserved.
func TestUsage_IsSettled(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		answer := ""
		up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if accepts := r.Header["Accept-Encoding"]; accepts != nil {
				t.Errorf("the upstream is asked for %q, which cannot be read", accepts)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			head, text, _ := strings.Cut(answer, "\n")
			for f := range strings.SplitSeq(head, " ") {
				if name, value, is := strings.Cut(f, "="); is {
					w.Header().Set(name, value)
				}
			}
			if strings.Contains(head, "503") {
				w.WriteHeader(503)
			}
			if strings.Contains(head, "gzip") {
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, text)
				_ = z.Close()
				return
			}
			_, _ = io.WriteString(w, text)
			if strings.Contains(head, "cut") {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		})
		p := newProxy(t, tokensYAML(up, tokensLimit), use)
		const event = "Content-Type=text/event-stream"
		for i, c := range []struct {
			body, answer string
			used         int64
			log          string
		}{
			{`{"max_tokens": 200}`, "\n" + `{"usage":{"prompt_tokens":30,"completion_tokens":20}}`, 50, "tokens=50/200 input=30 output=20"},
			{`{"max_tokens": 200, "max_completion_tokens": 300}`, "\n" + `{}`, 300, "absent"},
			{`{"max_tokens": 300, "max_completion_tokens": 1}`, "\n" + `{}`, 300, "absent"}, // Ollama knows only max_tokens
			{`{"max_tokens": null}`, "\n" + `{"usage":{"prompt_tokens":30,"completion_tokens":120}}`, 150, "tokens=150/100 input=30 output=120"},
			{`{}`, event + "\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n", 12, "tokens=12/100 input=7 output=5"},
			{`{"max_tokens": 5000}`, "\n" + `{"usage":{"prompt_tokens":1}}`, 1, "tokens=1/900 input=1"},
			{`{}`, "\n" + `{"usage":{"prompt_tokens":5000000000}}`, 900, "tokens=900/100 input=2147483647"},
			{`{}`, "\n" + `{"usage":{"prompt_tokens":0}}`, 0, "tokens=0/100"},
			{`{}`, "\n" + `{"usage":{"prompt_tokens":-5}}`, 100, "absent"},
			{`{}`, "\n" + `{"usage":{"prompt_tokens":"5"}}`, 100, "absent"},
			{`{}`, "503\n" + `{"usage":{"prompt_tokens":5}}`, 100, "error"},
			{`{}`, "Content-Encoding=gzip\n" + `{"usage":{"prompt_tokens":5}}`, 100, "encoded"},
			{`{}`, event + " cut\ndata: {\"usage\":{\"prompt_tokens\":5}}\n\n", 100, "tokens=100/100 input=5"},
			{`{}`, event + " cut\ndata: {\"usage\":{\"prompt_tokens\":500}}\n\n", 500, "tokens=500/100 input=500"},
			{`{}`, event + " cut\ndata: {\"a\":1}\n\n", 100, "cut"},
			{`{}`, "\n{\"a\":\"" + strings.Repeat("x", 2<<20) + "\",\"usage\":{\"prompt_tokens\":5}}", 5, "tokens=5/100 input=5"},
		} {
			answer = c.answer
			tenant, status := fmt.Sprint("t", i), 200
			if strings.HasPrefix(c.answer, "503") {
				status = 503
			}
			rec := p.chat(status, tenant, c.body)
			if i == 0 && rec.Header().Get("RateLimit") != `"tokens";r=800` {
				t.Errorf("RateLimit is %s; want what is left after the reservation", rec.Header().Get("RateLimit"))
			}
			if got := p.usedTokens(tenant); got != c.used {
				t.Errorf("%s answered with %.80s: %d used; want %d", c.body, c.answer, got, c.used)
			}
			lines := p.lines("request")
			if got := lines[len(lines)-1]["used"]; got != c.log {
				t.Errorf("%s answered with %.80s: the log says %q; want %q", c.body, c.answer, got, c.log)
			}
		}
		for _, body := range []string{`{"max_tokens": -1}`, `{"max_tokens": 1.5}`, `{"max_tokens": "many"}`, `{"max_tokens": 1, "max_tokens": 9}`, `{"max_tokens": [1]}`, `x`} {
			p.chat(400, "bad", body)
			if lines := p.lines("request"); strings.Contains(fmt.Sprint(lines[len(lines)-1]["keys"]), "asked") {
				t.Errorf("%s: the log says what was asked: %v", body, lines[len(lines)-1])
			}
		}
		if got := p.usedTokens("bad"); got != 0 {
			t.Errorf("a request that is refused has used %d", got)
		}
	})
}

// What a response has used more is debt: it refuses until it has left the window.
func TestUsage_IsOwed(t *testing.T) {
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":800}}`)
	})
	p := newProxy(t, tokensYAML(up, tokensLimit))
	p.chat(200, "a", `{}`)
	p.chat(200, "a", `{}`)
	if got := p.usedTokens("a"); got != 1600 {
		t.Errorf("%d used; want 1600 of 1000", got)
	}
	p.chat(429, "a", `{"max_tokens": 1}`)
	p.chat(200, "b", `{"max_tokens": 1}`)
	p.chat(200, "c", `{"max_tokens": 900}`)
	told := p.scrape("text/plain")
	for _, want := range []string{
		`weir_settled_permits_total{limit="tokens",result="reserved",route="chat"} 1101`,
		`weir_settled_permits_total{limit="tokens",result="charged",route="chat"} 2199`,
		`weir_settled_permits_total{limit="tokens",result="refunded",route="chat"} 100`,
		`weir_settled_ratio_bucket{limit="tokens",route="chat",le="0.9"} 1`,
		`weir_settled_ratio_count{limit="tokens",route="chat"} 4`,
	} {
		if !strings.Contains(told, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// What requests in flight use beyond what was reserved for them is all that is used beyond the limit; with input: bytes and a
// bound of the output nothing is.
func TestUsage_BoundOfManyAtOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		const reserved, actual, limit = 500, 2000, 20_000
		for cost, most := range map[string]int64{"{reserve: 500}": limit / reserved * actual, "{reserve: [json:/max_tokens], input: bytes}": limit} {
			var mu sync.Mutex
			served := int64(0)
			all := make(chan struct{})
			up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				<-all // until each is answered or under way
				mu.Lock()
				defer mu.Unlock()
				served += actual
				_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, len(body), actual-len(body))
			})
			p := newProxy(t, tokensYAML(up, `{name: tokens, key: tenant, rate: 20000/1h, max_cost: 20000, cost: `+cost+`}`), use)
			body := fmt.Sprintf(`{"max_tokens": %d, "prompt": "%s"}`, actual-400, strings.Repeat("x", 400-len(`{"max_tokens": 1600, "prompt": ""}`)))
			var wg sync.WaitGroup
			refused := make(chan bool, 50)
			tenant := fmt.Sprint("many", most)
			for range 50 {
				wg.Go(func() {
					r := httptest.NewRequestWithContext(context.Background(), "POST", "/chat", strings.NewReader(body))
					r.Header.Set("X-Tenant", tenant)
					r.Header.Set("Content-Type", "application/json")
					rec := httptest.NewRecorder()
					weirtest.ServeHTTP(p, rec, r)
					refused <- rec.Code == 429
				})
			}
			for range 50 - most/actual { // those are refused at once
				if !<-refused {
					t.Error("a request was answered before all were decided")
				}
			}
			close(all)
			wg.Wait()
			if got := p.usedTokens(tenant); served != most || got != most {
				t.Errorf("%s: %d served, %d counted; want %d", cost, served, got, most)
			}
		}
	})
}

// A number in a header, or the bytes of the body, are what was used; each kind of token has its price; and a limit in shadow
// mode counts alike.
func TestUsage_OtherForms(t *testing.T) {
	accepts := ""
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		accepts = r.Header.Get("Accept-Encoding")
		w.Header().Set("X-Cost", "12.5")
		w.Header().Set("X-Huge", "1e400")
		w.Header().Set("X-Inf", "inf")
		w.Header().Set("X-Hex", "0x1p4")
		w.Header()["X-Two"] = []string{"5", "5"}
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens":10}}`)
	})
	for _, c := range []struct {
		usage, cost string
		used        int64
	}{
		{`{total: "header:X-Cost"}`, "{reserve: 50}", 13},
		{`{total: "header:X-Other"}`, "{reserve: 50}", 50},
		{`{total: "header:X-Huge"}`, "{reserve: 50}", 900},
		{`{total: "header:X-Inf"}`, "{reserve: 50}", 50},
		{`{total: "header:X-Hex"}`, "{reserve: 50}", 50},
		{`{total: "header:X-Two"}`, "{reserve: 50}", 50},
		{"{total: bytes}", "{reserve: 50}", 99},
		{`{total: "json:/usage/completion_tokens"}`, "{reserve: 50}", 10},
		{"openai", "{reserve: 50, settle: {cached: 0.1, output: 4}}", 86},
		{"openai", "{reserve: 50, settle: {input: 0, cached: 0, output: 1}}, mode: shadow", 10},
		{"anthropic", "{reserve: 50, settle: {output: 4}}", 200}, // says nothing: what is reserved is weighted too
		{"{total: bytes}", "{reserve: 50, debt: unbounded}, max_cost: 60", 99},
		{"{total: bytes}", "{reserve: 50}, max_cost: 60", 60},
		{"openai, rewrite: {headers: {set: {Accept-Encoding: identity}}}", "{reserve: 50, settle: {output: 4}}", 140},
	} {
		p := newProxy(t, strings.Replace(tokensYAML(up, `{name: tokens, key: tenant, rate: 1000/1h, cost: `+strings.TrimSuffix(c.cost+", max_cost: 900", strings.Repeat(", max_cost: 900", strings.Count(c.cost, "max_cost")))+`}`), "usage: openai", "usage: "+c.usage, 1))
		if p.chat(200, "a", `{}`); p.usedTokens("a") != c.used {
			t.Errorf("%s, %s: %d used; want %d", c.usage, c.cost, p.usedTokens("a"), c.used)
		}
		if isRead := !strings.Contains(c.usage, "header:") && !strings.Contains(c.usage, "bytes") && !strings.Contains(c.usage, "rewrite"); isRead != (accepts == "") {
			t.Errorf("%s: the upstream is asked for %q", c.usage, accepts)
		}
	}
}

// No part of a stream waits for what follows.
func TestUsage_HoldsNothingBack(t *testing.T) {
	next := make(chan string)
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range next {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	})
	p := newProxy(t, tokensYAML(up, tokensLimit))
	gate := httptest.NewServer(p)
	t.Cleanup(gate.Close)
	go func() { next <- "data: {\"us" }()
	r, err := http.NewRequestWithContext(t.Context(), "POST", gate.URL+"/chat", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"X-Tenant": {"s"}, "Content-Type": {"application/json"}}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got bytes.Buffer
	for _, part := range []string{"data: {\"us", "age\":{\"prompt_tokens\":1", "7}}\n", "\n"} {
		if part != "data: {\"us" {
			next <- part
		}
		if _, err := io.CopyN(&got, res.Body, int64(len(part))); err != nil { // before the upstream has written more
			t.Fatal(err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v after the end", rest, err)
	}
	p.until(func() bool { return p.settling.Load() == 0 && len(p.lines("request")) > 0 })
	if got := p.usedTokens("s"); got != 17 {
		t.Errorf("%d used; want 17", got)
	}
}

// A budget takes the price of the model, before by what the request may use and afterwards by what it has used. A model
// without a row, or a request without one, has the dearest.
func TestUsage_Money(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			switch body, _ := io.ReadAll(r.Body); {
			case bytes.Contains(body, []byte("silent")):
				return
			case bytes.Contains(body, []byte("free")):
				_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":0,"completion_tokens":0}}`)
				return
			}
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":600},"completion_tokens":100}}`)
		})
		p := newProxy(t, tokensYAML(up, `{name: spend, key: tenant, budget: [0.02/1d], price: models, max_cost: 1000, cost: {reserve: [json:/max_tokens, 100], input: bytes/4}}`), use)
		for i, c := range []struct {
			body string
			used int64 // in parts of a million of a dollar
		}{
			{`{"model": "gpt-4o-2024"}`, 400*2.5 + 600*1.25 + 100*10},
			{`{"model": "gpt-4o-mini"}`, 400*0.15 + 600*0.075 + 100*0.6},
			{`{"model": "other"}`, 1000*20 + 100*80},
			{`{"model": "gpt-4o", "silent":1}`, 8*2.5 + 100*10},
			{`{"model": "gpt-4o", "silent":1, "max_tokens": 5000}`, 1000 * 10}, // max_cost tokens, at the dearest kind
			{`{"model": "gpt-4o", "free":1}`, 0},
		} {
			tenant := fmt.Sprint("m", i)
			p.chat(200, tenant, c.body)
			if got := p.usedTokens(tenant); got != c.used {
				t.Errorf("%s: %d spent; want %d", c.body, got, c.used)
			}
		}
		p.chat(400, "m9", `{}`) // without a model, as the key has no on_missing
		p.chat(403, "m9", `{"model": "gpt-9", "max_tokens": 300}`)
		var spent float64
		for _, text := range []string{"m0", "m1", "m2", "m3", "m4", "m5"} {
			spent += float64(p.usedTokens(text)) / 1e6
		}
		if got := testutil.ToFloat64(p.metrics.Spend.WithLabelValues("chat", "spend", "USD")); got < spent-1e-9 || got > spent+1e-9 {
			t.Errorf("weir_spend_total is %v; want %v", got, spent)
		}
	})
}

// What a client leaves is estimated by what has passed, if the route says so: never more than was reserved, and never less
// than the response had said. What was reserved stays where the length of the prompt is not known.
func TestUsage_CutIsEstimated(t *testing.T) {
	said := ""
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, said)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p := newProxy(t, strings.Replace(tokensYAML(up, tokensLimit), "usage: openai", "usage: {format: openai, on_cut: estimate}", 1))
	text := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	for i, c := range []struct {
		said string
		used int64
	}{
		{text, int64(len(text)/4 + len("{}  ")/4)},
		{strings.Repeat(text, 100), 100},
		{text + "data: {\"usage\":{\"completion_tokens\":70}}\n\n", 71},
		{text + "data: {\"usage\":{\"completion_tokens\":700}}\n\n", 700},
	} {
		said = c.said
		tenant := fmt.Sprint("c", i)
		p.chat(200, tenant, `{}  `)
		if got := p.usedTokens(tenant); got != c.used {
			t.Errorf("%.60s: %d used; want %d", c.said, got, c.used)
		}
	}
	said = text
	for tenant, limit := range map[string]string{"read": tokensLimit, "unread": `{name: tokens, key: tenant, rate: 1000/1h, max_cost: 900, cost: {reserve: 100}}`} {
		p := newProxy(t, strings.Replace(tokensYAML(up, limit), "usage: openai", "usage: {format: openai, on_cut: estimate}", 1))
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/chat", strings.NewReader(`{"a":"`+strings.Repeat("x", 92)+`"}`))
		r.ContentLength = -1
		r.Header = http.Header{"X-Tenant": {tenant}, "Content-Type": {"application/json"}}
		p.ServeHTTP(httptest.NewRecorder(), r)
		want := map[string]int64{"read": int64(len(text)/4 + 100/4), "unread": 100}[tenant]
		if got := p.usedTokens(tenant); got != want {
			t.Errorf("body of unknown length, %s: %d used; want %d", tenant, got, want)
		}
	}
}
