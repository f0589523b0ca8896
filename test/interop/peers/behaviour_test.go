package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/weir-proxy/weir/test/await"
)

func allowed(b *bench) string {
	b.app.received()
	b.wants(200, 0, "/sms?a=b", "X-Phone: allowed", "X-Weir-Handle: of the client")
	got := b.app.received()
	handles := got.Values("X-Weir-Handle")
	if len(handles) != 1 || handles[0] == "of the client" || handles[0] == "" {
		b.Errorf("the application got the handles %q; want Weir's alone", handles)
	}
	return "200, the handle reaches the application"
}

func refused(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: refused")
	b.wants(200, 1, "/sms", "X-Phone: refused")
	b.app.received()
	got := b.wants(429, 0, "/sms", "X-Phone: refused")
	if b.app.received() != nil {
		b.Error("the application got a request that was refused")
	}
	var problem struct{ Status int }
	if json.Unmarshal([]byte(got.body), &problem) != nil || problem.Status != 429 || got.header.Get("Content-Type") != "application/problem+json" {
		b.Errorf("refused with %q of the type %q; want a problem", got.body, got.header.Get("Content-Type"))
	}
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
		if len(got.header.Values(name)) != 1 {
			b.Errorf("refused with %v; want %s once", got.header, name)
		}
	}
	b.wants(b.refusal(400), 0, "/sms")
	return "429 with Retry-After, RateLimit and body"
}

func showsRest(b *bench) string {
	got := b.wants(200, 0, "/free")
	if has := carried(got.header.Get("RateLimit") != ""); has != b.showsRest {
		b.Errorf("RateLimit on a success: %v; want %v", has, b.showsRest)
	}
	return b.showsRest.String()
}

func headerKey(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: one")
	b.wants(200, 1, "/sms", "X-Phone: one")
	b.wants(429, 1, "/sms", "X-Phone: one")
	b.wants(200, 1, "/sms", "X-Phone: another")
	return "yes"
}

func bodies(b *bench) string {
	if b.sendsBody {
		b.wants(200, 0, "/body", `{"phone": "1"}`)
		b.wants(429, 1, "/body", `{"phone": "1"}`)
		b.wants(200, 1, "/body", `{"phone": "2"}`)
	}
	return b.sendsBody.String()
}

func keyTwice(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: twice")
	b.wants(200, 0, "/sms", "X-Phone: twice")
	for _, others := range []string{"1", "2"} {
		b.wants(b.refusal(400), 0, "/sms", "X-Phone: twice", "X-Phone: other"+others)
		b.wants(b.refusal(400), 0, "/sms", "X-Phone: another"+others, "X-Phone: twice")
	}
	return fmt.Sprint(b.refusal(400))
}

func forgedFields(b *bench) string {
	b.wants(200, 0, "/address")
	for _, forged := range []string{
		"X-Forwarded-For: 198.51.100.7", "X-Original-URI: /free", "X-Forwarded-Uri: /free", "X-Original-Method: OPTIONS", "X-Forwarded-Method: OPTIONS",
		"X-Original-Host: other", "X-Forwarded-Host: other", "X-Forwarded-Proto: https", "X-Weir-Status: 200", "X-Weir-Token: 1", "X-Real-IP: 198.51.100.7",
		"X-Envoy-External-Address: 198.51.100.7", "X-Envoy-Original-Path: /free", "X-Envoy-Internal: true",
	} {
		b.wants(429, 1, "/address", forged)
	}
	return "counts as before"
}

func exact(b *bench) string {
	var passed, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			switch got := b.send(i%2, "/many"); got.status {
			case 200:
				passed.Add(1)
			case 429:
				refused.Add(1)
			default:
				b.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if passed.Load() != 50 || refused.Load() != 150 {
		b.Errorf("%d passed and %d were refused; want 50 and 150", passed.Load(), refused.Load())
	}
	return "exactly 50"
}

// handle sends a request that is allowed, and returns the handle that the application got.
func (b *bench) handle(phone string, lines ...string) string {
	b.Helper()
	b.app.received()
	b.settled(func() { b.send(0, "/sms", append(lines, "X-Phone: "+phone)...) })
	got := b.app.received().Get("X-Weir-Handle")
	if got == "" {
		b.Fatal("the application got no handle")
	}
	return got
}

func reportedByApplication(b *bench) string {
	handle := b.handle("application")
	b.handle("application")
	b.wants(429, 1, "/sms", "X-Phone: application")
	if b.peer.reports {
		b.reports(409, 1, handle, 503) // the peer has reported 200
		return "the proxy is first"
	}
	b.reports(204, 1, handle, 503)
	b.wants(200, 1, "/sms", "X-Phone: application")
	b.wants(429, 0, "/sms", "X-Phone: application")
	return "yes"
}

func reportedByPeer(b *bench) string {
	if !b.peer.reports {
		return "no"
	}
	for range 3 {
		b.settled(func() { b.wants(503, 0, "/sms", "X-Phone: peer", "X-Status: 503") })
	}
	b.wants(200, 1, "/sms", "X-Phone: peer")
	b.wants(200, 1, "/sms", "X-Phone: peer")
	b.wants(429, 0, "/sms", "X-Phone: peer")
	return "yes"
}

func forgedHandle(b *bench) string {
	handle := b.handle("forged")
	second := b.handle("forged")
	if !b.peer.reports {
		b.reports(204, 0, handle, 200)
	}
	b.reports(409, 1, handle, 503)
	b.reports(403, 1, "A"+second[1:len(second)-2]+"AA", 503)
	b.reports(403, 0, strings.ToUpper(second), 503)
	b.wants(429, 0, "/sms", "X-Phone: forged", "X-Weir-Handle: "+second)
	return "changes nothing"
}

func redisStopped(b *bench) string {
	b.redis.Kill()
	await.Until(b.T, "refusal without Redis", func() bool { return b.send(0, "/sms", "X-Phone: without").status == b.refusal(503) })
	await.Until(b.T, "the other route passes", func() bool { return b.send(0, "/address").status == 200 })
	return fmt.Sprintf("`on_store_failure`: %d or allowed", b.refusal(503))
}

// weirHung keeps the bounds of time of the example. A peer that checks Weir's health may have found it down.
func weirHung(b *bench) string {
	hasty := b.peer.start(b.T, b.asks[1], strings.TrimPrefix(b.app.URL, "http://"))
	b.weirs[1].Signal(syscall.SIGSTOP)
	defer b.weirs[1].Signal(syscall.SIGCONT)
	r, err := http.NewRequest("GET", hasty+"/free", nil)
	if err != nil {
		b.Fatal(err)
	}
	got := do(b.T, r)
	if got.status != b.hung && got.status != b.stopped {
		b.Errorf("%d %s while Weir is hung; want %d", got.status, got.body, b.hung)
	}
	// Timers of some peers are of whole milliseconds, and end early by a part of one.
	if got.status == b.hung && (got.took < b.bound*9/10 || got.took > b.bound+longTimeout) {
		b.Errorf("%d after %v while Weir is hung; want it after %v", got.status, got.took, b.bound)
	}
	return fmt.Sprintf("%d after its timeout of %v", b.hung, b.bound)
}

// weirStopped has a peer that would wait for longTimeout: it does not.
func weirStopped(b *bench) string {
	b.weirs[0].Kill()
	await.Until(b.T, "answer without Weir", func() bool {
		got := b.send(0, "/free")
		if got.took >= longTimeout {
			b.Errorf("%d after %v without Weir; want it at once", got.status, got.took)
		}
		return got.status == b.stopped
	})
	return fmt.Sprintf("%d at once", b.stopped)
}
