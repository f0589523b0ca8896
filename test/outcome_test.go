package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// answering is a server that answers with the status that the request asks for.
func answering(t *testing.T) *countingBackend {
	t.Helper()
	return startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cut") != "" { // says more than it sends
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		status, err := strconv.Atoi(r.Header.Get("Want"))
		if err != nil {
			status = http.StatusOK
		}
		w.WriteHeader(status)
	})
}

// want sends requests for p, each asking the upstream for one of the statuses.
func (w *weir) want(path string, statuses ...int) []int {
	w.t.Helper()
	out := make([]int, len(statuses))
	for i, s := range statuses {
		out[i], _ = do(w.t, http.MethodPost, w.URL+path, http.Header{"X-Phone": {"p"}, "Want": {strconv.Itoa(s)}})
	}
	return out
}

func TestOutcome_WhatFailedIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			w := start(t, store+fmt.Sprintf(`upstreams: {gone: "http://127.0.0.1:1"}
routes:
  - name: send
    match: {path: /send}
    upstream: %s
    refund_on: {status: [5xx], errors: [timeout, connect, cut, reset]}
    limits: [{key: "header:X-Phone", rates: [2/1h, 9/24h]}]
  - name: gone
    match: {path: /gone}
    upstream: gone
    refund_on: {errors: [connect]}
    limits: [{key: "header:X-Phone", rate: 1/1h}]
`, answering(t).URL))
			// Each is given back before the next comes, and nothing more than that.
			for _, failure := range []int{500, 502, 503, 599, 500} {
				status := failure
				await.Until(t, "what failed is given back", func() bool { return w.want("/send", status)[0] == failure })
			}
			gave := func(n float64) func() bool {
				return func() bool { return w.metric(`weir_refunds_total{limit="header-X-Phone",route="send"}`) >= n }
			}
			await.Until(t, "five are given back", gave(5))
			do(t, http.MethodPost, w.URL+"/send", http.Header{"X-Phone": {"p"}, "Cut": {"yes"}})
			await.Until(t, "what was cut is given back", gave(6))
			if got := w.want("/send", 200, 404, 200); !slices.Equal(got, []int{200, 404, 429}) {
				t.Errorf("after six failures of 2 allowed the answers are %v, want 200, 404 and then 429", got)
			}
			for range 3 {
				await.Until(t, "what reached nobody is given back", func() bool { return w.want("/gone", 200)[0] == http.StatusBadGateway })
			}
		})
	}
}

// A hundred guesses at once: each is counted when it comes, so that no more
// than the limit reach the upstream, and only the wrong ones stay counted.
func TestOutcome_OnlyFailuresStayCounted(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			api := answering(t)
			w := start(t, store+fmt.Sprintf(`routes:
  - name: verify
    match: {path: /verify}
    upstream: %s
    limits: [{name: guesses, key: "header:X-Phone", rate: 5/10m, count: {status: [4xx]}}]
`, api.URL))
			for range 12 {
				await.Until(t, "what was right is not counted", func() bool { return w.want("/verify", 200)[0] == http.StatusOK })
			}
			before := api.hits()
			l := &load{answers: map[int]int{}}
			for range 100 {
				l.clients.Go(func() {
					client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
					l.send(client, w.URL+"/verify", http.Header{"X-Phone": {"q"}, "Want": {"401"}})
				})
			}
			l.clients.Wait()
			if reached := api.hits() - before; reached != 5 || l.answers[401] != 5 || l.answers[429] != 95 {
				t.Errorf("of 100 wrong guesses %d reached the upstream, answers %v; want 5", reached, l.answers)
			}
		})
	}
}

// A client that leaves, and a weir that ends, are no way to make a permit come
// back twice or stay away.
func TestOutcome_GivesBackWhileDraining(t *testing.T) {
	t.Parallel()
	stores := stores(t)
	release := make(chan struct{})
	api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		waitForRelease(r, release)
		w.WriteHeader(http.StatusBadGateway)
	})
	config := stores["redis"] + fmt.Sprintf(`routes:
  - {name: send, match: {path: /v1/sms/send}, upstream: %s, refund_on: {status: [5xx]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
`, api.URL)
	w := start(t, config)
	answer := make(chan int, 1)
	go func() { answer <- w.send("p") }()
	await.Until(t, "the request is under way", func() bool { return api.hits() == 1 })
	w.Signal(syscall.SIGTERM)
	w.WaitForLog("draining", nil)
	close(release)
	if got := <-answer; got != http.StatusBadGateway {
		t.Errorf("the request under way is answered %d, want the upstream's 502", got)
	}
	w.Exit()
	if got := start(t, config).statuses("p", 1); got[0] != http.StatusBadGateway {
		t.Errorf("after the refund the next weir answers %v, want the upstream to be asked", got)
	}
}

// Who leaves early has sent the request all the same.
func TestOutcome_LeavingDoesNotGiveBack(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	w := start(t, fmt.Sprintf(`routes:
  - {name: send, match: {path: /v1/sms/send}, upstream: %s, refund_on: {status: [5xx], errors: [timeout, connect, cut, reset]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
`, api.URL))
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/v1/sms/send", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Phone", "p")
	go http.DefaultClient.Do(req)
	<-arrived
	leave()
	w.WaitForLog("request", nil)
	if got := w.send("p"); got != http.StatusTooManyRequests {
		t.Errorf("after a client that left the answer is %d, want 429: the code was sent", got)
	}
}

func TestLimit_CostsOverridesAndBursts(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, store+`upstreams: {demo: echo}
routes:
  - {name: cost, match: {path: /cost}, upstream: demo, limits: [{key: client_ip, rate: 10/1h, cost: "query:size", max_cost: 6}]}
  - {name: over, match: {path: /over}, upstream: demo, limits: [{key: "header:X-Phone", rate: 1/1h, overrides: {"vip": [3/1h]}}]}
  - {name: even, match: {path: /even}, upstream: demo, limits: [{key: "header:X-Phone", rate: 60/1h, algorithm: gcra, burst: 3}]}
  - {name: window, match: {path: /window}, upstream: demo, limits: [{key: "header:X-Phone", rate: 2/1h, algorithm: fixed_window}]}
  - {name: slide, match: {path: /slide}, upstream: demo, limits: [{key: "header:X-Phone", rate: 2/1h, algorithm: sliding_window}]}
`)
			for _, row := range []struct {
				path  string
				phone string
				want  []int
			}{
				{"/cost?size=6", "", []int{200, 429}},
				{"/cost?size=4", "", []int{200, 429}},
				{"/over", "anybody", []int{200, 429}},
				{"/over", "vip", []int{200, 200, 200, 429}},
				{"/even", "p", []int{200, 200, 200, 429}},
				{"/window", "p", []int{200, 200, 429}},
				{"/slide", "p", []int{200, 200, 429}},
			} {
				got := make([]int, len(row.want))
				for i := range got {
					got[i], _ = do(t, http.MethodPost, w.URL+row.path, http.Header{"X-Phone": {row.phone}})
				}
				if !slices.Equal(got, row.want) {
					t.Errorf("%s for %q is answered %v, want %v", row.path, row.phone, got, row.want)
				}
			}
			for _, bad := range []string{"/cost?size=x", "/cost?size=-1", "/cost?size=1&size=2"} {
				if status, body := do(t, http.MethodPost, w.URL+bad, nil); status != http.StatusBadRequest && status != http.StatusTooManyRequests {
					t.Errorf("%s is answered %d %s, want a refusal", bad, status, body)
				}
			}
		})
	}
}

// A window of two seconds that is full is empty again after two seconds, for
// every algorithm.
func TestLimit_ComesBack(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := "upstreams: {demo: echo}\nroutes:\n"
			algorithms := []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"}
			for _, a := range algorithms {
				config += fmt.Sprintf("  - {name: %[1]s, match: {path: /%[1]s}, upstream: demo, limits: [{key: client_ip, rate: 1/2s, algorithm: %[1]s}]}\n", a)
			}
			w := start(t, store+config)
			for _, a := range algorithms {
				do(t, http.MethodPost, w.URL+"/"+a, nil)
			}
			for _, a := range algorithms {
				await.Within(t, 6*time.Second, a+" lets through again", func() bool {
					status, _ := do(t, http.MethodPost, w.URL+"/"+a, nil)
					return status == http.StatusOK
				})
			}
		})
	}
}

// A client that gets a 500 under refund_on and asks again at once is not refused because of
// it: the refund comes before the answer, over each protocol and store.
func TestRefund_ComesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	const rounds = 2000
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("streamed") {
			w.WriteHeader(http.StatusInternalServerError)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, strings.Repeat("x", 10_000))
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(upstream.Close)
	for name, store := range map[string]string{"memory": "", "redis": redisYAML(redistest.Start(t).Addr)} {
		t.Run(name, func(t *testing.T) {
			w := start(t, store+`upstreams: {api: "`+upstream.URL+`", gone: "http://127.0.0.1:1"}
routes:
  - {name: send, match: {path: /send}, upstream: api, refund_on: {status: [5xx]}, limits: [{name: phone, key: "header:X-Phone", rates: [1/1h, 3/24h]}]}
  - {name: gone, match: {path: /gone}, upstream: gone, refund_on: {errors: [connect]}, limits: [{name: phone, key: "header:X-Phone", rate: 1/1h}]}
  - {name: guesses, match: {path: /guesses}, upstream: api, limits: [{name: phone, key: "header:X-Phone", rate: 1/1h, count: {status: [4xx]}}]}
`)
			for path, want := range map[string]int{"/send": 500, "/send?streamed": 500, "/gone": 502, "/guesses": 500} {
				refused := 0
				for range rounds / 4 {
					status, _ := do(t, http.MethodPost, w.URL+path, http.Header{"X-Phone": {path}})
					if status == http.StatusTooManyRequests {
						refused++
					} else if status != want {
						t.Fatalf("%s: %d; want %d", path, status, want)
					}
				}
				if refused > 0 {
					t.Errorf("%s: %d of %d were refused", path, refused, rounds/4)
				}
			}
		})
	}
}

// Another node knows of a refund a round trip to Redis later. How long that takes is only printed.
func TestOutcome_WhatFailedMayBeRepeatedElsewhere(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	config := fmt.Sprintf(`store: redis
redis: {addrs: [%q], timeout: 5s}
routes:
  - {name: send, match: {path: /send}, upstream: %q, refund_on: {status: [5xx]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
`, addr, answering(t).URL)
	one, other := start(t, config), start(t, config)
	ask := func(w *weir, phone string, status int) int {
		got, _ := do(t, http.MethodPost, w.URL+"/send", http.Header{"X-Phone": {phone}, "Want": {strconv.Itoa(status)}})
		return got
	}
	waitForMembership(t, addr, 2)
	rdb := redisClient(t, addr)
	var waits, trips []time.Duration
	refused := 0
	for i := range 300 {
		phone := strconv.Itoa(i)
		if got := ask(one, phone, 500); got != 500 {
			t.Fatalf("the request that fails is answered %d", got)
		}
		since, tries := time.Now(), 1
		for ; ask(other, phone, 200) != 200; tries++ { // at once: a pause would be measured too
			if time.Since(since) > await.Limit {
				t.Fatalf("the other node refuses the request %v after the first was refunded", time.Since(since))
			}
		}
		if waits = append(waits, time.Since(since)); tries > 1 {
			refused++
		}
		since = time.Now()
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		trips = append(trips, time.Since(since))
	}
	slices.Sort(trips)
	slices.Sort(waits)
	of := func(all []time.Duration) string {
		return fmt.Sprintf("median %v, 99%% %v, at most %v", all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
	t.Logf("%d of %d were refused at first; passed after (requests included): %s; a round trip to Redis: %s", refused, len(waits), of(waits), of(trips))
}
