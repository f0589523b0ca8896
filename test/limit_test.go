package test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// stores are the configurations of every kind of store.
func stores(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"memory": "", "redis": redisYAML(redistest.Start(t).Addr)}
}

// A request that one limit refuses uses up nothing of the others.
func TestLimit_AllOrNothing(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, store+`upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [1/1h, 7/24h]}
      - {name: ip, key: client_ip, rate: 4/1h}
`)
			if got := w.statuses("a", 6); !slices.Equal(got, []int{200, 429, 429, 429, 429, 429}) {
				t.Fatalf("the answers are %v, want 200 and then 429", got)
			}
			got := append(append(w.statuses("b", 1), w.statuses("c", 1)...), append(w.statuses("d", 1), w.statuses("e", 1)...)...)
			if !slices.Equal(got, []int{200, 200, 200, 429}) {
				t.Errorf("after one granted request of 4 the address has %v left, want three more", got)
			}
		})
	}
}

// The refusal names the limits that refused, shows all that may be seen, and
// says when to come back: then the request passes.
func TestLimit_RefusalSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, store+`upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [1/3s, 9/1h]}
      - {name: secret, key: client_ip, rate: 5/1h, expose: false}
`)
			w.statuses("p", 1)
			status, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
			refused := time.Now()
			after, err := strconv.Atoi(header.Get("Retry-After"))
			if status != 429 || err != nil || after < 1 || after > 4 {
				t.Fatalf("the answer is %d, Retry-After %q, want 429 and 1 to 4 seconds", status, header.Get("Retry-After"))
			}
			var problem struct {
				Violated []string `json:"violated-policies"`
			}
			if err := json.Unmarshal([]byte(body), &problem); err != nil || len(problem.Violated) != 1 || !strings.HasPrefix(problem.Violated[0], "phone") {
				t.Errorf("the problem is %s, want it to name the phone's limit", body)
			}
			for _, text := range append(header.Values("RateLimit"), append(header.Values("RateLimit-Policy"), body)...) {
				if strings.Contains(text, "secret") {
					t.Errorf("a hidden limit is named: %s", text)
				}
			}
			if got := header.Get("RateLimit"); !strings.Contains(got, ";r=0;t=") || !strings.Contains(got, ";r=8") {
				t.Errorf("RateLimit is %q, want nothing left in 3 s and 8 in 1 h", got)
			}
			if header.Get("Cache-Control") != "no-store" {
				t.Errorf("a refusal may be stored: %q", header.Get("Cache-Control"))
			}
			back := refused.Add(time.Duration(after) * time.Second)
			await.Until(t, "Retry-After is over", func() bool { return time.Now().After(back) })
			if got := w.send("p"); got != http.StatusOK {
				t.Errorf("after Retry-After the answer is %d, want 200", got)
			}
		})
	}
}

// A limit that only refuses what nobody may know of leaves no name behind.
func TestLimit_HiddenRefusalIsNameless(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ", expose: false"))
	w.statuses("p", 1)
	status, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	if status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("the answer is %d %v, want 429 and Retry-After", status, header)
	}
	if header.Get("RateLimit") != "" || header.Get("RateLimit-Policy") != "" || strings.Contains(body, "phone") {
		t.Errorf("the hidden limit shows: %v %s", header, body)
	}
}

func TestLimit_WhatIsMissing(t *testing.T) {
	t.Parallel()
	w := start(t, `upstreams: {demo: echo}
keys:
  skipped: {from: "header:X-Phone", on_missing: skip}
  shared: {from: "header:X-Phone", on_missing: shared}
  else: {from: "header:X-Phone", on_missing: {use: ip}}
  ip: client_ip
routes:
  - {name: reject, match: {path: /reject}, upstream: demo, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: skip, match: {path: /skip}, upstream: demo, limits: [{key: skipped, rate: 1/1h}]}
  - {name: shared, match: {path: /shared}, upstream: demo, limits: [{key: shared, rate: 1/1h}]}
  - {name: else, match: {path: /else}, upstream: demo, limits: [{key: else, rate: 1/1h}]}
`)
	for path, want := range map[string][]int{
		"/reject": {400, 400}, "/skip": {200, 200}, "/shared": {200, 429}, "/else": {200, 429},
	} {
		a, _ := do(t, http.MethodPost, w.URL+path, nil)
		b, _ := do(t, http.MethodPost, w.URL+path, nil)
		if !slices.Equal([]int{a, b}, want) {
			t.Errorf("%s without a phone is answered %d, %d; want %v", path, a, b, want)
		}
	}
	twice := http.Header{"X-Phone": {"1", "2"}}
	for _, path := range []string{"/reject", "/skip", "/shared", "/else"} {
		if status, body := do(t, http.MethodPost, w.URL+path, twice); status != http.StatusBadRequest {
			t.Errorf("%s with two phones is answered %d %s, want 400: nobody can tell which one counts", path, status, body)
		}
	}
}

func TestLimit_ShadowAndOff(t *testing.T) {
	t.Parallel()
	w := start(t, `upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: shadow, key: "header:X-Phone", rate: 1/1h, mode: shadow}
      - {name: off, key: "header:X-Phone", rate: 1/2h, mode: off}
`)
	if got := w.statuses("p", 3); !slices.Equal(got, []int{200, 200, 200}) {
		t.Errorf("the answers are %v, want no refusal", got)
	}
	if got := w.metric(`weir_decisions_total{limit="shadow",result="shadow_refused",route="send"}`); got != 2 {
		t.Errorf("%v would have been refused, want 2", got)
	}
}

func TestLimit_OtherHeaders(t *testing.T) {
	t.Parallel()
	w := start(t, "defaults: {headers: x-ratelimit}\n"+smsYAML("2/1h", ""))
	_, header, _ := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	if header.Get("X-RateLimit-Limit") != "2" || header.Get("X-RateLimit-Remaining") != "1" || header.Get("RateLimit") != "" {
		t.Errorf("the header is %v, want X-RateLimit-* only", header)
	}
	w = start(t, "defaults: {headers: none}\n"+smsYAML("1/1h", ""))
	w.statuses("p", 1)
	_, header, _ = exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	for name := range header {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("the header has %s, want none about limits", name)
		}
	}
	if header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
}
