package proxy

import (
	"github.com/weir-proxy/weir/proxy/key"
	"math/rand/v2"
	"net/netip"
	"net/textproto"
	"strconv"
	"testing"
	"time"
)

// BenchmarkObserveShare is what a request pays for what operators may ask about later (the
// ring of decisions, the keys that are seen most), beside all that it pays between its
// downstream and its upstream (stages), in one run: share-% is the first of the second,
// which is itself less than half of the CPU of a request with its system calls.
func BenchmarkObserveShare(b *testing.B) {
	for name, rate := range map[string]string{"allowed": "1000000000/1s", "refused": "1/24h"} {
		b.Run(name, func(b *testing.B) {
			p := benchProxy(b, `{name: key, key: "header:X-Api-Key", rate: `+rate+`}, {name: address, key: client_ip, rate: 1000000000/1m}`)
			q := &LoggedRequest{Method: "GET", Target: "/some/path?a=b", Client: netip.MustParseAddr("192.0.2.1"), Fields: []LoggedField{{key.Origin{Source: key.Header, Name: "X-Api-Key"}, "somebody"}}}
			one := &replayed{x: *newExchange().(*exchange), header: textproto.MIMEHeader{}}
			x := &one.x
			g := p.current.Load()
			decide := func() {
				x.reset()
				one.fill(q, "example.com")
				x.began, x.generation = time.Now(), g
				x.outcome.known = p.resolveRoute(g, x) == nil && p.decide(b.Context(), x) == nil
				x.response.status = 200
			}
			decide()
			for b.Loop() {
				decide()
			}
			stages := b.Elapsed() / time.Duration(b.N)
			began := time.Now()
			for range b.N {
				x.began = x.began.Add(time.Microsecond)
				p.shared.observe(x)
			}
			observing := time.Since(began) / time.Duration(b.N)
			b.ReportMetric(float64(observing.Nanoseconds()), "observe-ns")
			b.ReportMetric(100*float64(observing)/float64(stages), "share-%")
		})
	}
}

// BenchmarkStages is a request without its downstream and its upstream, of as many clients as there are
// processors (-cpu 1,2,4,8): what processors share shows in its time.
func BenchmarkStages(b *testing.B) {
	for name, limits := range map[string]string{
		"plain": "", "memory": `{name: l, key: "header:X-Api-Key", rate: 1000000000/1m}`, "refused": `{name: l, key: "header:X-Api-Key", rate: 1/24h}`,
	} {
		b.Run(name, func(b *testing.B) {
			p := benchProxy(b, limits)
			b.RunParallel(func(pb *testing.PB) {
				one := &replayed{x: *newExchange().(*exchange), header: textproto.MIMEHeader{}}
				one.x.reused = true
				q := &LoggedRequest{Method: "GET", Target: "/some/path?a=b", Client: netip.MustParseAddr("192.0.2.1"), Fields: []LoggedField{{key.Origin{Source: key.Header, Name: "X-Api-Key"}, ""}}}
				for n := rand.IntN(10_000); pb.Next(); n++ {
					q.Fields[0].Value = strconv.Itoa(n % 10_000)
					one.fill(q, "example.com")
					err := p.accept(&one.x)
					if err == nil {
						err = p.decide(b.Context(), &one.x)
					}
					one.x.outcome.known, one.x.response.status = err == nil, 200
					p.finish(b.Context(), &one.x)
				}
			})
		})
	}
}

// BenchmarkCounts is what one tick of the events costs, that the dashboard listens to
// while it is open: once a second, however many requests there are and whoever listens.
func BenchmarkCounts(b *testing.B) {
	p := benchProxy(b, `{name: key, key: "header:X-Api-Key", rate: 1/24h}`)
	b.ReportAllocs()
	for b.Loop() {
		p.Counts()
	}
}

func benchProxy(b *testing.B, limits string) *Proxy {
	b.Helper()
	return newProxy(b, forwardYAML("echo", "", "limits: ["+limits+"]"), bare).Proxy
}
