package proxy

import (
	"testing"
	"time"
)

// resetting are two routes: one with a cooldown that the other's success ends.
const resetting = `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
routes:
  - {name: send, match: {path: /send}, upstream: 'URL', refund_on: {status: [5xx]}, limits: [{name: backoff, key: phone, cooldown: [1m, 5m], reset_on: {route: verify, status: [2xx]}}]}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`

func TestCooldown_GrowsAndBeginsAnew(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, resetting, use)
		w.sends(503, "POST", "/send?status=503", "X-Phone: 1") // given back: as if it had not been
		w.sends(200, "POST", "/send", "X-Phone: 1")
		rec := w.sends(429, "POST", "/send", "X-Phone: 1")
		w.hasField(rec, "RateLimit", `"backoff";r=0;t=60`)
		w.sends(200, "POST", "/send", "X-Phone: 2")
		w.sends(403, "POST", "/verify?status=403", "X-Phone: 1")
		w.sends(200, "POST", "/verify", "X-Phone: 3")
		w.sends(429, "POST", "/send", "X-Phone: 1")
		w.sends(204, "POST", "/verify?status=204", "X-Phone: + 1")
		w.sends(200, "POST", "/send", "X-Phone: 1")
		w.sends(429, "POST", "/send", "X-Phone: 1")
		w.sends(429, "POST", "/send", "X-Phone: 2")
		for _, method := range []string{"OPTIONS", "HEAD", "TRACE"} { // many servers answer these by themselves
			w.sends(200, method, "/verify", "X-Phone: 2")
			w.sends(429, "POST", "/send", "X-Phone: 2")
		}
		w.counted(2, w.metrics.Resets.WithLabelValues("send", "backoff"))
	})
}

// The pauses grow with each request that passes, not with those that are refused.
func TestCooldown_Steps(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, cooldown: [1s, 3s]}", func(t *testing.T, w *testProxy) {
		start := time.Now()
		for _, at := range []time.Duration{0, time.Second, 4 * time.Second, 7 * time.Second} {
			for since := time.Since(start); since < at; since = time.Since(start) {
				w.sends(429, "GET", "/a")
				advanceTime(500 * time.Millisecond)
			}
			w.sends(200, "GET", "/a")
		}
		advanceTime(6 * time.Second) // twice the last step
		w.sends(200, "GET", "/a")
		advanceTime(time.Second)
		w.sends(200, "GET", "/a")
		w.sends(429, "GET", "/a")
	})
}
