package redis

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// The rows of a limiter that Java has filled, and of the mirror.
const (
	fullRow   = "a limiter of 100,000 permits, of Java's"
	mirrorRow = "mirror"

	otherBefore = "another limit, before it is filled"
	otherAfter  = "another limit"
)

// measureFull fills a limiter of Redisson's as Java does, and prints what a request costs
// that it refuses, and one of another limit before and after: µs of Redis, and how long the
// caller waits, in the middle.
func measureFull(b *testing.B, table table) {
	const permits = 100_000
	s := newStage(b)
	client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{s.addr}, Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{CachedRefusals: -1, Timeout: time.Minute})
	defer store.Close()
	other := limiter.Claim{Limit: &limiter.Limit{Name: "l", Rate: rate(1_000_000, time.Hour), Algorithm: limiter.GCRA}, Key: keyOf(1), Cost: 1}
	fmt.Println()
	ask := func(name string, c limiter.Claim) {
		used, waited := asked(b, s, store, c)
		table.set(fullRow, name, used)
		table.set(fullRow, name+", as the caller sees it", waited)
		fmt.Printf("%s: %s: %.0f µs of Redis a request, the caller waits %.0f µs\n", fullRow, name, used, waited)
	}
	ask(otherBefore, other)
	var fill []byte
	for i := range permits {
		member := "\x10" + newID() + newID() + "\x01\x00\x00\x00"
		fill = append(fill, encode("zadd", "{full}:permits", fmt.Sprint(time.Now().UnixMilli()-int64(permits-i)/10), member)...)
	}
	s.send(append(fill, encode("set", "{full}:value", "0")...))
	s.do("hset", "full", "rate", fmt.Sprint(permits), "interval", fmt.Sprint(time.Hour.Milliseconds()), "type", "0", "keepAliveTime", "0")
	ask("refused", limiter.Claim{Limit: &limiter.Limit{Name: "l", Rate: rate(1, time.Hour)}, Cost: 1, RedissonName: "full"})
	ask(otherAfter, other)
}

// asked is the least that some hundred requests for c cost Redis each, and how long the one
// in the middle waits.
func asked(b *testing.B, s *stage, store *redisstore.Store, c limiter.Claim) (used, waited float64) {
	const rounds, asks = 5, 100
	var d limiter.Decision
	var took []time.Duration
	used = math.Inf(1)
	for range rounds {
		before := s.cpu()
		for range asks {
			began := time.Now()
			if err := store.Take(b.Context(), []limiter.Claim{c}, &d); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
			if full := c.RedissonName != ""; d.Allowed == full {
				b.Fatalf("allowed %v", d.Allowed)
			}
		}
		used = min(used, (s.cpu()-before)/asks)
	}
	slices.Sort(took)
	return used, float64(took[len(took)/2].Nanoseconds()) / 1000
}

// measureMirror prints what a process pays for keeping a mirror of what Redis decides, with
// which it takes over while Redis is away: CPU of noting one decision, and bytes of a key.
func measureMirror(b *testing.B, table table) {
	const keys, times = 100_000, 10
	claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: rate(times, time.Hour)}, Cost: 1}}
	d := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true}}}
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	bytes := heap()
	m := limiter.NewMemory(limiter.MemoryOptions{})
	began := ownCPU(b)
	for n := range times {
		d.Outcomes[0].Remaining = int64(times - n - 1)
		for i := range keys {
			claims[0].Key = keyOf(i)
			binary.LittleEndian.PutUint64(d.Permit.ID[:], uint64(n*keys+i+1))
			m.Mirror(claims, &d, 1)
		}
	}
	used := (ownCPU(b) - began) / (keys * times)
	each := float64(heap()-bytes) / keys
	runtime.KeepAlive(m)
	table.set(mirrorRow, "µs", used)
	table.set(mirrorRow, "bytes", each)
	fmt.Printf("the mirror of Redis's decisions: %.2f µs of this process a decision, %.0f bytes a key\n", used, each)
}

// ownCPU is what this process has used, in µs.
func ownCPU(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
}
