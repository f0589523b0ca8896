package test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// What people are counted by is nowhere to be read: not in figures, not in
// lines, not in the store, not in an answer, whatever goes wrong.
func TestPrivacy_NoRawKeyLeaves(t *testing.T) {
	t.Parallel()
	const phone = "+86 138 0013 8000"
	server := redistest.Start(t)
	silent := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	w := start(t, redisYAML(server.Addr)+`upstreams: {demo: "`+silent.URL+`", gone: "http://127.0.0.1:1"}
routes:
  - {name: send, match: {path: /send}, upstream: demo, limits: [{key: {from: "header:X-Phone", normalize: digits}, rate: 1/1h}]}
  - {name: gone, match: {path: /gone}, upstream: gone, limits: [{key: "header:X-Phone", rate: 9/1h}]}
  - {name: query, match: {path: /query}, upstream: demo, limits: [{key: "query:phone", rate: 1/1h}]}
  - {name: path, match: {path: "/path/{phone}"}, upstream: demo, limits: [{key: "path:phone", rate: 1/1h}]}
`)
	header := http.Header{"X-Phone": {phone}}
	var bodies []string
	for range 2 {
		do(t, http.MethodPost, w.URL+"/send", header)
		do(t, http.MethodPost, w.URL+"/query?phone=%2B86+138+0013+8000", nil)
		do(t, http.MethodPost, w.URL+"/path/+8613800138000", nil)
	}
	for _, ask := range []struct {
		url    string
		header http.Header
	}{
		{"/send", header}, // refused
		{"/gone", header}, // not forwarded
		{"/query?phone=%2B86+138+0013+8000&phone=2", nil}, // ambiguous
		{"/query?phone=%2B8613800138000;x", nil},
		{"/send", http.Header{"X-Phone": {phone, phone}}},
		{"/path/+8613800138000", nil},
	} {
		_, body := do(t, http.MethodPost, w.URL+ask.url, ask.header)
		bodies = append(bodies, body)
	}
	server.Kill() // and when the store is away
	for range 2 {
		_, body := do(t, http.MethodPost, w.URL+"/send", header)
		bodies = append(bodies, body)
	}
	await.Until(t, "all lines are written", func() bool { return w.log.Count("request") >= 14 })
	for what, text := range map[string]string{"log": w.log.String(), "metrics": w.metrics(), "answers": strings.Join(bodies, "\n")} {
		for _, raw := range []string{"13800138000", "138 0013 8000", "138+0013+8000", "138%200013"} {
			if strings.Contains(text, raw) {
				t.Errorf("the raw key %q is in the %s", raw, what)
			}
		}
	}
}

func TestPrivacy_StoreKeysHoldNoRawKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+smsYAML("5/1h", ""))
	w.statuses("13800138000", 2)
	names, err := redisClient(t, server.Addr).Keys(t.Context(), "*").Result()
	if err != nil || len(names) == 0 {
		t.Fatalf("keys in Redis: %v %v, want some", names, err)
	}
	for _, name := range names {
		if strings.Contains(name, "13800138000") {
			t.Errorf("the raw key is in the name %q", name)
		}
		if !strings.HasPrefix(name, "weir:") {
			t.Errorf("the name %q has not the prefix weir:", name)
		}
	}
}
