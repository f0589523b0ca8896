package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A meter tells what decisions cost: µs of Redis's CPU from its own statistics,
// and of this process from the system's.
type meter struct {
	s      *testStore
	client time.Duration
	server float64
}

func (s *testStore) meter() *meter {
	s.do("config", "resetstat")
	return &meter{s: s, client: cpu(s.t), server: s.serverCPU()}
}

// serverCPU is the CPU time of Redis in µs, sockets and all. On a busy machine it
// is truer than the statistics of commands, which go by the wall.
func (s *testStore) serverCPU() (usec float64) {
	s.t.Helper()
	info, err := s.client.Info(s.t.Context(), "cpu").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, line := range strings.Split(info, "\r\n") {
		if name, v, _ := strings.Cut(line, ":"); name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, err := strconv.ParseFloat(v, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			usec += 1e6 * seconds
		}
	}
	return usec
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report is per decision: µs in scripts, script calls, µs of client CPU.
func (m *meter) report(b *testing.B, decisions int) {
	b.Helper()
	used, server := cpu(b)-m.client, m.s.serverCPU()-m.server
	ran := redistest.Scripts(b, m.s.client)
	b.ReportMetric(float64(ran.Took.Microseconds())/float64(decisions), "redis-µs/op")
	b.ReportMetric(server/float64(decisions), "redis-cpu-µs/op")
	b.ReportMetric(float64(ran.Calls)/float64(decisions), "scripts/op")
	b.ReportMetric(float64(used.Microseconds())/float64(decisions), "client-µs/op")
}

var benchRates = []limiter.Rate{
	{Count: 1, Window: time.Second}, {Count: 10, Window: time.Second}, {Count: 1000, Window: time.Second}, {Count: 100_000, Window: time.Second},
}

// BenchmarkTake is one caller alone: one script call for each decision. keys says
// over how many keys they are spread.
func BenchmarkTake(b *testing.B) {
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
		for _, rate := range benchRates {
			if algorithm != limiter.TokenBucket && rate.Count != 1000 {
				continue
			}
			for _, keys := range []int{1, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/keys=%d", algorithm, rate, keys), func(b *testing.B) {
					run(b, rate, algorithm, keys, 1)
				})
			}
		}
	}
}

// BenchmarkIdle is a caller that nobody else disturbs, by the plain path and by the
// one that gathers: it must cost no time.
func BenchmarkIdle(b *testing.B) {
	s := newTestStore(b)
	c := claim(1_000_000, time.Second, 1)
	for name, take := range map[string]func(context.Context, []limiter.Claim, *limiter.Decision) error{
		"plain": s.store.TakePlain, "together": s.store.Take,
	} {
		b.Run(name, func(b *testing.B) {
			var d limiter.Decision
			all := make([]time.Duration, 0, b.N)
			for range b.N {
				start := time.Now()
				s.check(take(b.Context(), c, &d))
				all = append(all, time.Since(start))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		})
	}
}

// BenchmarkTakeTogether is 64 callers at once, as a busy proxy is.
func BenchmarkTakeTogether(b *testing.B) {
	for _, rate := range benchRates {
		for _, keys := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("%s/keys=%d", rate, keys), func(b *testing.B) {
				run(b, rate, limiter.TokenBucket, keys, 64)
			})
		}
	}
}

// BenchmarkTakeRefused is a flood on a spent key.
func BenchmarkTakeRefused(b *testing.B) {
	s := newTestStore(b)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	decide(b, store, c...)
	decide(b, store, c...)
	m := s.meter()
	var d limiter.Decision
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Take(b.Context(), c, &d); err != nil || d.Allowed {
			b.Fatal(d, err)
		}
	}
	m.report(b, b.N)
}

// run takes from many callers, without what is remembered of refusals.
func run(b *testing.B, rate limiter.Rate, algorithm limiter.Algorithm, keys, callers int) {
	s := newTestStore(b)
	l := &limiter.Limit{Name: "bench", Rate: rate, Algorithm: algorithm}
	all := make([]limiter.Key, keys)
	for i := range all {
		all[i] = limiter.KeyOf(strconv.Itoa(i))
	}
	store := storeOn(b, s.client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	decide(b, store, limiter.Claim{Limit: l, Key: all[0], Cost: 1})
	m := s.meter()
	var next, granted atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			claims := make([]limiter.Claim, 1)
			var d limiter.Decision
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				claims[0] = limiter.Claim{Limit: l, Key: all[int(n*7919)%keys], Cost: 1}
				if err := store.Take(b.Context(), claims, &d); err != nil {
					b.Error(err)
					return
				}
				if d.Allowed {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	m.report(b, b.N)
	b.ReportMetric(float64(granted.Load())/float64(b.N), "granted/op")
	bytes := int64(0)
	for _, key := range s.do("keys", "weir:{"+all[0].String()+"*").([]any) {
		bytes += s.do("memory", "usage", key, "samples", 0).(int64)
	}
	b.ReportMetric(float64(bytes), "bytes/key")
}

// BenchmarkAfterIdling is the slowest single call on a key of 100,000 permits a
// second that was busy and then idle: everything has expired at once.
func BenchmarkAfterIdling(b *testing.B) {
	s := newTestStore(b)
	c := claim(100_000, 200*time.Millisecond, 1)
	var worst int64
	for b.Loop() {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 100 {
					decide(b, s.store, c...)
				}
			})
		}
		wg.Wait()
		<-time.After(250 * time.Millisecond)
		s.do("config", "set", "slowlog-log-slower-than", 0)
		s.do("slowlog", "reset")
		decide(b, s.store, c...)
		for _, entry := range s.do("slowlog", "get", 10).([]any) {
			e := entry.([]any)
			if args := e[3].([]any); args[0] == "evalsha" {
				worst = max(worst, e[2].(int64))
			}
		}
		s.do("config", "set", "slowlog-log-slower-than", 1_000_000)
	}
	b.ReportMetric(float64(worst), "worst-µs")
}

// A decider is Store.Take or the plain path: one script call for each decision.
type decider func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error

// BenchmarkOpenLoop is a store that requests come to at fixed times, whether or not
// those before are answered; latency counts from when a request was to come. The
// plain path and the one that gathers take turns of an eighth of a second, so that a
// machine that is busy with other things is so for both; a round is four turns of
// each, and what is printed are medians of the rounds. -benchtime 20x makes 20.
func BenchmarkOpenLoop(b *testing.B) {
	for _, perSecond := range []int{200, 1000, 5000} {
		b.Run(fmt.Sprintf("arrivals=%d", perSecond), func(b *testing.B) {
			s := newTestStore(b)
			paths := map[string]decider{"plain": s.store.TakePlain, "together": s.store.Take}
			names := []string{"plain", "together"}
			for _, name := range names { // connections, and the scripts
				openLoop(b, paths[name], perSecond)
			}
			p50, p99 := map[string][]time.Duration{}, map[string][]time.Duration{}
			for b.Loop() {
				took := map[string][]time.Duration{}
				for turn := range 8 {
					name := names[turn%2]
					took[name] = append(took[name], openLoop(b, paths[name], perSecond)...)
				}
				for name, all := range took {
					slices.Sort(all)
					p50[name] = append(p50[name], all[len(all)/2])
					p99[name] = append(p99[name], all[len(all)*99/100])
				}
			}
			for name := range paths {
				b.ReportMetric(micros(p50[name]), name+"-p50-µs")
				b.ReportMetric(micros(p99[name]), name+"-p99-µs")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// micros is the median.
func micros(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}

// openLoop lets requests over 10,000 keys come for an eighth of a second and returns
// how long each took.
func openLoop(b *testing.B, take decider, perSecond int) []time.Duration {
	l := &limiter.Limit{Name: "open", Rate: limiter.Rate{Count: 100, Window: time.Second}}
	took := make([]time.Duration, perSecond/8)
	begin := time.Now().Add(10 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range took {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if wait := time.Until(due); wait > 0 {
			<-time.After(wait)
		}
		wg.Go(func() {
			var d limiter.Decision
			claims := []limiter.Claim{{Limit: l, Key: limiter.KeyOf(strconv.Itoa(i * 7919 % 10_000)), Cost: 1}}
			if err := take(b.Context(), claims, &d); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	return took
}
