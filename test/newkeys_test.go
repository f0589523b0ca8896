package test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// Whoever invents a phone number for each request is stopped before Redis and the
// upstream see what he invents; those whose numbers are known pass, and so does
// everybody else.
func TestNewKeys_InventedNumbersReachNobody(t *testing.T) {
	t.Parallel()
	const most, invented = 20, 500
	server, up := redistest.Start(t), startBackend(t, func(http.ResponseWriter, *http.Request) {})
	config := func(newKeys string) string {
		return redisYAML(server.Addr) + `client_ip: {trusted_proxies: [127.0.0.1]}
routes:
  - name: sms
    match: {path: /v1/sms/send}
    upstream: ` + up.URL + `
    new_keys: ` + newKeys + `
    limits: [{key: {from: "header:X-Phone", normalize: digits}, rates: [3/1h, 10/1d]}]
`
	}
	w := start(t, config(fmt.Sprint(most, "/1h")))
	send := func(from, phone string) int {
		status, _ := do(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Forwarded-For": {from}, "X-Phone": {phone}})
		return status
	}
	rdb := redisClient(t, server.Addr)
	stored := func() int64 {
		var n int64
		for keys := rdb.Scan(context.Background(), 0, "*sms*", 1000).Iterator(); keys.Next(t.Context()); n++ {
		}
		return n
	}
	got := map[int]int{}
	for i := range invented {
		got[send("203.0.113.66", fmt.Sprintf("+8613800%06d", i))]++
	}
	if got[http.StatusOK] != most || got[http.StatusTooManyRequests] != invented-most {
		t.Errorf("answers are %v, want %d of 200 and the rest 429", got, most)
	}
	if up.hits() != most {
		t.Errorf("the upstream saw %d requests, want %d", up.hits(), most)
	}
	before := stored()
	if before > 4*most {
		t.Errorf("Redis has %d keys of %d numbers", before, most)
	}
	if status := send("203.0.113.66", "+86 13800 000000"); status != http.StatusOK {
		t.Errorf("a number that is known is answered %d", status)
	}
	if status := send("198.51.100.1", "+86 13900 000000"); status != http.StatusOK {
		t.Errorf("somebody else's first number is answered %d", status)
	}
	if got := w.metric(`weir_new_keys_total{result="refused",route="sms"}`); got != invented-most {
		t.Errorf("weir_new_keys_total says %v were refused, want %d", got, invented-most)
	}
	w.WaitForLog("request", func(l logtest.Line) bool {
		return l.Text("new_keys") == "refused" && l.Text("client") == "203.0.113.66"
	})

	w.edit(config(fmt.Sprint(most+5, "/1h")))
	if status, body := w.reload(); status != http.StatusOK {
		t.Fatalf("reload is answered %d %s", status, body)
	}
	got = map[int]int{}
	for i := range 50 {
		got[send("203.0.113.66", fmt.Sprintf("+8613700%06d", i))]++
	}
	if got[http.StatusOK] != 5 {
		t.Errorf("after a reload that allows five more the answers are %v", got)
	}
}
