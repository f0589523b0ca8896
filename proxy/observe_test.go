package proxy

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
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
				one.fill(q, "example.com", config.Match{})
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
					one.fill(q, "example.com", config.Match{})
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

// Of requests that are taken back over HTTP/2 a few lines are written each second; all
// are counted, and those of other clients are all told of.
func TestRecord_ResetsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, limitYAML("{key: global, rate: 1000/1h}"))
		record := func(r clientResponse) {
			x := finishedExchange(w.Proxy, "alice", limiter.Decision{Allowed: true})
			x.response = r
			w.recorder.record(x)
		}
		for range 100 {
			record(clientResponse{streamReset: true})
		}
		w.sends(200, "GET", "/a")
		if got := len(w.lines("request")); got != loggedResets+1 {
			t.Errorf("%d lines; want %d and that of the one that stayed", got, loggedResets)
		}
		w.counted(90, w.metrics.unloggedResets)
		if got := testutil.CollectAndCount(w.metrics.requests); got == 0 {
			t.Error("requests are not counted")
		}
		time.Sleep(time.Second)
		record(clientResponse{streamReset: true})
		for range 20 {
			record(clientResponse{}) // a connection each
		}
		if got := len(w.lines("request")); got != loggedResets+1+1+20 {
			t.Errorf("%d lines a second later; want 21 more", got)
		}
		w.Close()
	})
}

// Each byte is mapped by its five lowest bits, whatever its neighbors are.
func TestRequestIDs_CharactersByValue(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	for b := range 256 {
		for _, others := range []uint64{0, 0xff, uint64(b), 26, 25} {
			for at := range 8 {
				random := others*0x0101010101010101&^(0xff<<(8*at)) | uint64(b)<<(8*at)
				var got, want [8]byte
				binary.LittleEndian.PutUint64(got[:], idCharacters(random))
				for i := range want {
					want[i] = letters[byte(random>>(8*i))%32]
				}
				if got != want {
					t.Fatalf("%016x: %s, want %s", random, got, want)
				}
			}
		}
	}
}

func TestRequestIDs_NoTwoAreTheSame(t *testing.T) {
	var ids requestIDs
	var mu sync.Mutex
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				for text := range slices.Chunk([]byte(ids.batch()), idLength) {
					id := string(text)
					mu.Lock()
					if seen[id] || !form.MatchString(id) {
						t.Errorf("id %q, seen before: %v", id, seen[id])
					}
					seen[id] = true
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	var other requestIDs
	if len(seen) != 8*100*idBatch {
		t.Errorf("%d ids, want %d", len(seen), 8*100*idBatch)
	}
	if id := other.batch()[:idLength]; seen[id] {
		t.Errorf("another proxy has made %q too", id)
	}
}
