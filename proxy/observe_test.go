package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/test/rounds"
)

// finishedExchange is a request over three limits that has come to its end.
func finishedExchange(p *Proxy, user string, d limiter.Decision) *exchange {
	g := p.current.Load()
	x := newExchange().(*exchange)
	x.generation, x.route = g, g.routes[0]
	x.id, x.request.Method, x.request.Path, x.response.status = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "POST", "/v1/sms/send", 200
	x.began, x.duration, x.Source, x.Decided, x.outcome.known = time.Now(), time.Millisecond, 7, true, d.Allowed
	x.Decision.Allowed = d.Allowed
	for _, l := range x.route.Active {
		k := limit.Key{Spec: l.Key, Key: limiter.KeyOf(l.Key.Name, user), Text: user}
		x.extracted.keys = append(x.extracted.keys, k)
		x.Claims.Add(l.Windows, &limiter.Claim{Key: k.Key, Cost: 1})
		for range l.Windows {
			x.Decision.Outcomes = append(x.Decision.Outcomes, limiter.Outcome{Allowed: d.Allowed, Remaining: 3, Wait: time.Second})
		}
	}
	return x
}

const threeLimits = "{name: one, key: 'header:X-User', rates: [1/1m, 5/1h]}, {name: two, key: client_ip, rate: 5/1h}, {name: three, key: host, rate: 5/1h}"

func TestObserve_DoesNotAllocate(t *testing.T) {
	w := newProxy(t, limitYAML(threeLimits))
	for _, allowed := range []bool{true, false} {
		x := finishedExchange(w.Proxy, "alice", limiter.Decision{Allowed: allowed})
		o := w.shared
		for range 1000 { // the parts of the ring are made when they are needed
			x.began = x.began.Add(time.Microsecond)
			o.observe(x)
		}
		if got := rounds.Allocations(1000, func() { o.observe(x) }); got > 0 {
			t.Errorf("%v allocations for a request that is allowed: %v", got, allowed)
		}
	}
}

// What operators may ask costs next to a request of nothing but limits.
func BenchmarkObserve(b *testing.B) {
	p := newProxy(b, limitYAML(threeLimits), bare)
	for _, allowed := range []bool{true, false} {
		b.Run(fmt.Sprint("allowed=", allowed), func(b *testing.B) {
			var all []*exchange
			for i := range 1000 { // more keys than are counted
				all = append(all, finishedExchange(p.Proxy, fmt.Sprint("user", i), limiter.Decision{Allowed: allowed}))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x := all[i%len(all)]
				x.began = x.began.Add(time.Microsecond)
				p.shared.observe(x)
				i++
			}
		})
	}
}
