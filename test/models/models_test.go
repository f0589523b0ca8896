package models

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// TestMain builds weir once, as the tests of the whole do, and puts it first on PATH.
func TestMain(m *testing.M) { weirtest.Main(m, weirtest.Race()...) }

// gatewayYAML has a route for each API.
func gatewayYAML(models, more string) string {
	const limit = `limits: [{name: tokens, key: tenant, rate: 1000000/1h, max_cost: 5000, cost: {reserve: [json:/max_tokens, json:/max_completion_tokens, json:/max_output_tokens, 100], input: bytes}}]`
	text := weirtest.Listeners + more + "keys: {tenant: {from: 'header:Authorization', on_missing: shared}}\nupstreams: {models: {targets: ['" + models + "']}}\nroutes:\n"
	for _, r := range []struct{ path, usage string }{
		{"/v1/chat/completions", "{format: openai, ensure_usage: true}"}, {"/v1/responses", "{format: openai, ensure_usage: true}"},
		{"/v1/embeddings", "{format: openai, ensure_usage: true}"}, {"/v1/messages", "anthropic"}, {"/v1beta/models/*", "gemini"}, {"/api/chat", "ollama"},
	} {
		text += fmt.Sprintf("  - {match: {methods: [POST], path: '%s'}, upstream: models, body: {max: 4MiB}, usage: %s, %s}\n", r.path, r.usage, limit)
	}
	return text
}

// gateway starts Weir before the models at that URL.
func gateway(t testing.TB, models, more string) *weirtest.Process {
	return weirtest.Start(t, exec.Command("weir", "-c", weirtest.Write(t, gatewayYAML(models, more))))
}

// ask sends a request, and returns the log's line of it.
func ask(t testing.TB, w *weirtest.Process, path, body string) logtest.Line {
	t.Helper()
	r, err := http.Post(w.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // it may be cut
	r.Body.Close()
	return w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("request_id") == r.Header.Get("X-Request-Id") })
}

// Each API says its usage in its way, whole and streamed, and Weir counts what it says; what is cut, silent or no number of at
// least 0 keeps what was reserved, and what is huge counts max_cost.
func TestModels(t *testing.T) {
	up := httptest.NewServer(&Server{})
	t.Cleanup(up.Close)
	w := gateway(t, up.URL, "")
	for _, api := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"How are you?"}],"max_tokens":40,"stream":%v}`},
		{"/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":"How are you?"}],"max_completion_tokens":40,"stream":%v,"stream_options":{"include_usage":false}}`},
		{"/v1/responses", `{"model":%q,"input":"How are you?","max_output_tokens":40,"stream":%v}`},
		{"/v1/embeddings", `{"model":%q,"input":"How are you?","x":%v}`},
		{"/v1/messages", `{"model":%q,"messages":[{"role":"user","content":"How are you?"}],"max_tokens":40,"stream":%v}`},
		{"/v1beta/models/%s:generateContent", `{"contents":[{"parts":[{"text":"How are you?"}]}],"generationConfig":{"maxOutputTokens":40},"model":%q,"x":%v}`},
		{"/v1beta/models/%s:streamGenerateContent", `{"contents":[{"parts":[{"text":"How are you?"}]}],"generationConfig":{"maxOutputTokens":40},"model":%q,"x":%v}`},
		{"/v1beta/models/%s:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"How are you?"}]}],"generationConfig":{"maxOutputTokens":40},"model":%q,"x":%v}`},
		{"/api/chat", `{"model":%q,"messages":[{"role":"user","content":"How are you?"}],"options":{"num_predict":40},"stream":%v}`},
	} {
		for _, stream := range []bool{false, true} {
			for _, model := range []string{"honest", "cut", "mute", "lie-negative", "lie-text", "lie-huge"} {
				path, body := strings.ReplaceAll(api.path, "%s", model), fmt.Sprintf(api.body, model, stream)
				line := ask(t, w, path, body)
				reserved, output := int64(len(body)+40), int64(40)
				if !strings.Contains(body, `max_`) {
					reserved += 60 // as the limit says
				}
				if strings.HasSuffix(path, "embeddings") {
					output = 0
				}
				sent := int64(len(body)) // with what was ensured
				if strings.Contains(path, "chat/completions") && stream {
					sent += int64(len(`"stream_options":{"include_usage":true},`))
					if strings.Contains(body, "include_usage") {
						sent = int64(len(body)) - 1
					}
				}
				want := fmt.Sprintf("tokens=%d/%d input=%d cached=2", (sent+3)/4+output, reserved, (sent+3)/4-2)
				switch {
				case strings.HasSuffix(path, "embeddings"), path == "/api/chat":
					want = fmt.Sprintf("tokens=%d/%d input=%d", (sent+3)/4+output, reserved, (sent+3)/4)
				}
				if output > 0 {
					want += " output=40"
				}
				got := line.Text("used")
				switch model {
				case "cut":
					if want = "cut"; !strings.HasPrefix(got, "cut") && got != fmt.Sprintf("tokens=%[1]d/%[1]d", reserved)+got[strings.Index(got+" ", " "):] {
						t.Errorf("%s, streamed %v, cut: %q; want all that is reserved, %d", path, stream, got, reserved)
					}
					continue
				case "lie-huge":
					want = fmt.Sprintf("tokens=5000/%d", reserved)
					got = got[:min(len(got), len(want))]
				case "mute", "lie-negative", "lie-text":
					want = "absent"
				}
				if got != want {
					t.Errorf("%s, streamed %v, %s: %q; want %q", path, stream, model, got, want)
				}
			}
		}
	}
}

// A crowd of requests is answered when each of them has come to the model, or was refused.
type crowd struct {
	size int
	gone chan struct{} // closed then

	mu      sync.Mutex // guards what follows
	decided int
}

func (c *crowd) decide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided++; c.decided == c.size {
		close(c.gone)
	}
}

// wait is what the model does before it answers.
func (c *crowd) wait() {
	c.decide()
	<-c.gone
}

// Of 50 requests of 2,000 tokens that come at once to two nodes, as many pass as a limit of 20,000 has room for what is reserved
// for each: 10 if that is all they use, and then not one token beyond. If half as much is reserved 20 pass, and what they have
// used beyond is owed.
func TestModels_ManyAtOnce(t *testing.T) {
	redis := redistest.Start(t)
	for reserve, want := range map[string]int64{"{reserve: [json:/max_tokens], input: bytes}": 10, "{reserve: 1000}": 20} {
		all := &crowd{size: 50, gone: make(chan struct{})}
		model := &Server{Wait: all.wait}
		up := httptest.NewServer(model)
		t.Cleanup(up.Close)
		yaml := weirtest.Listeners + fmt.Sprintf("store: redis\nredis: {addrs: ['%s'], timeout: 30s}\nroutes:\n  - {name: chat%d, match: {methods: [POST], path: /v1/messages}, upstream: '%s', usage: anthropic, limits: [{name: tokens, key: global, rate: 20000/1m, max_cost: 20000, cost: %s}]}\n", redis.Addr, want, up.URL, reserve)
		nodes := []*weirtest.Process{}
		for range 2 {
			nodes = append(nodes, weirtest.Start(t, exec.Command("weir", "-c", weirtest.Write(t, yaml))))
		}
		const body = `{"model":"m","max_tokens":1900,"messages":"a prompt of 25 tokens, which has a hundred bytes in all"}`
		var requests sync.WaitGroup
		var passed atomic.Int64
		for i := range 50 {
			requests.Go(func() {
				r, err := http.Post(nodes[i%2].URL+"/v1/messages", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				switch r.StatusCode {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					all.decide()
				default:
					t.Errorf("status %d", r.StatusCode)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			})
		}
		requests.Wait()
		if t.Logf("%s: %d passed, %d tokens", reserve, passed.Load(), model.Used.Load()); len(body) != 100 || passed.Load() != want {
			t.Errorf("%s: %d passed; want %d", reserve, passed.Load(), want)
		}
	}
}

// A stream arrives as it is sent: no event waits for the next one, which the server holds back until the client has the last.
func TestModels_HoldNothingBack(t *testing.T) {
	const all = 27 // events of 20 tokens
	next := make(chan struct{})
	up := httptest.NewServer(&Server{Between: func() { <-next }})
	t.Cleanup(up.Close)
	w := gateway(t, up.URL, "")
	r, err := http.Post(w.URL+"/v1/messages", "application/json", strings.NewReader(`{"model":"m","max_tokens":20,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	buf := make([]byte, 1<<10)
	events := 0
	for {
		n, err := r.Body.Read(buf)
		if n > 0 {
			if events++; !strings.HasSuffix(string(buf[:n]), "\n\n") || strings.Count(string(buf[:n]), "\n\n") != 1 {
				t.Fatalf("%q is not one event", buf[:n])
			}
			if events < all {
				next <- struct{}{}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if events != all {
		t.Errorf("%d events; want %d", events, all)
	}
	await.Until(t, "the stream is settled", func() bool {
		for _, l := range w.Log.Lines() {
			if strings.HasSuffix(l.Text("used"), "output=20") {
				return true
			}
		}
		return false
	})
}

// What reading the usage adds to a stream of 200 events, one each millisecond: to its first byte, and between two events.
func BenchmarkStream(b *testing.B) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	up := httptest.NewServer(&Server{Between: func() { <-tick.C }})
	b.Cleanup(up.Close)
	for _, usage := range []string{"", "usage: anthropic, limits: [{name: tokens, key: global, rate: 2000000000/1m, max_cost: 5000, cost: {reserve: 100}}]"} {
		name := "without"
		if usage != "" {
			name = "with usage"
		}
		w := weirtest.Start(b, exec.Command("weir", "-c", weirtest.Write(b, weirtest.Listeners+"routes:\n  - {match: {path: /v1/messages}, upstream: '"+up.URL+"', "+usage+"}\n")))
		b.Run(name, func(b *testing.B) {
			var first, gaps []time.Duration
			buf := make([]byte, 1<<10)
			for b.Loop() {
				last := time.Now()
				r, err := http.Post(w.URL+"/v1/messages", "application/json", strings.NewReader(`{"model":"m","max_tokens":193,"stream":true}`))
				if err != nil {
					b.Fatal(err)
				}
				for n := 0; err == nil; n++ {
					_, err = r.Body.Read(buf)
					took := time.Since(last)
					if last = last.Add(took); n == 0 {
						first = append(first, took)
					} else {
						gaps = append(gaps, took)
					}
				}
				r.Body.Close()
			}
			slices.Sort(first)
			slices.Sort(gaps)
			b.ReportMetric(float64(first[len(first)/2].Microseconds()), "first-µs")
			b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds()), "gap-µs")
			b.ReportMetric(float64(gaps[len(gaps)*99/100].Microseconds()), "gap99-µs")
		})
	}
}
