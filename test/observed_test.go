package test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// What one node decided, and whom it refuses, each node tells. One that is silent is named.
func TestExplain_FindsARequestOnWhicheverNodeItWas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", "")
	one, other := start(t, config), start(t, config)
	waitForMembership(t, server.Addr, 2)
	_, header, _ := exchange(t, http.MethodPost, other.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	allowed := header.Get("X-Request-Id")
	status, header, _ := exchange(t, http.MethodPost, one.URL+"/v1/sms/send", http.Header{"X-Phone": {"p"}})
	if status != http.StatusTooManyRequests {
		t.Fatalf("the second request is answered %d", status)
	}
	refused := header.Get("X-Request-Id")
	for _, w := range []*weir{one, other} {
		w.explains(allowed, "200, allowed", "phone-1h")
		w.explains(refused, "429, refused", "phone-1h")
	}
	other.Signal(syscall.SIGSTOP)
	defer other.Signal(syscall.SIGCONT)
	code, stdout, stderr := one.admin(t.TempDir(), "explain", refused)
	if code != 0 || !strings.Contains(stdout, "429, refused") || !strings.Contains(stderr, ": no answer") {
		t.Errorf("beside a node that hangs, explain exits %d: %s%s; want the refusal, and that a node is silent", code, stdout, stderr)
	}
}

// explains waits until w tells of a request, and wants these words of it. A node that is
// busy may be late with what it knows.
func (w *weir) explains(id string, want ...string) {
	w.t.Helper()
	var stdout, stderr string
	await.Until(w.t, "a node knows request "+id, func() bool {
		var code int
		code, stdout, stderr = w.admin(w.t.TempDir(), "explain", id)
		return code == 0
	})
	for _, words := range want {
		if !strings.Contains(stdout, words) {
			w.t.Errorf("explain %s says %s%s; want %q", id, stdout, stderr, words)
		}
	}
}
