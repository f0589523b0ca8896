package redisstore_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// unused is a limit on sends whose code was not used, and a claim on it for a subject.
func unused(count int64, subject string) ([]*limiter.Limit, limiter.Claim) {
	l := &limiter.Limit{Name: "sms.unused:1h", Rate: limiter.Rate{Count: count, Window: time.Hour}, Algorithm: limiter.SlidingLog, Noted: true}
	return []*limiter.Limit{l}, limiter.Claim{Limit: l, Key: limiter.KeyOf("CN"), Cost: 1, Value: limiter.KeyOf(subject)}
}

func noteKey(subject string) string {
	return "weir:{" + limiter.KeyOf(subject).String() + "}:sms.unused{n}"
}

// A cached refusal of a key is not repeated once permits were returned by their subject, which does
// not say of which key: neither by this process, at once, nor by another.
func TestReturn_CorrectsCachedRefusals(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	near, far := s.hearing(), s.hearing()
	for range 20 {
		limits, ann := unused(1, "ann")
		_, bob := unused(1, "bob")
		decide(t, near, ann)
		for _, store := range []*redisstore.Store{near, far} {
			s.until("the refusal is cached", func() bool { // messages of earlier returns may still come
				d := decide(t, store, bob)
				return !d.Allowed && d.Repeats != nil
			})
		}
		wait := near.StartReturn(limits, limiter.KeyOf("ann"))
		if d := decide(t, near, bob); !d.Allowed {
			t.Fatalf("refused after the return: %+v", d)
		}
		if n, err := wait(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := near.Return(t.Context(), limits, limiter.KeyOf("bob")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		s.until("the other process hears of it", func() bool { return decide(t, far, bob).Allowed })
		if n, err := far.Return(t.Context(), limits, limiter.KeyOf("bob")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
}

// Taking and noting is one script call, and so is returning of 8 permits; a note is small and expires.
func TestReturn_IsOneScript(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	limits, c := unused(1000, "ann")
	before := s.scripts()
	s.allowed([]limiter.Claim{c}, 100)
	if n := s.scripts() - before; n != 101 { // once Redis did not know the script
		t.Errorf("%d scripts for 100 requests", n)
	}
	if n := s.do("strlen", noteKey("ann")).(int64); n != 64*44 {
		t.Errorf("a note of %d bytes", n)
	}
	if ttl := s.do("pttl", noteKey("ann")).(int64); ttl < 3_590_000 || ttl > 3_600_000 {
		t.Errorf("a note lives for %d ms", ttl)
	}
	s.returns(limits, "ann", 64)
	if n := s.scripts() - before; n != 109 {
		t.Errorf("%d scripts with the return", n)
	}
	s.left([]limiter.Claim{c}, 1000-100+64)
	if n := s.do("exists", noteKey("ann")).(int64); n != 0 {
		t.Error("the note is still there")
	}
}

// What is returned in several calls is all of it, and each decision counts once, however many permits it has.
func TestReturn_InPieces(t *testing.T) {
	s := newTestStore(t)
	for windows := 1; windows <= 7; windows++ {
		var limits []*limiter.Limit
		var claims []limiter.Claim
		for i := range windows {
			l := &limiter.Limit{Name: fmt.Sprint("pieces", windows, ":", i), Rate: limiter.Rate{Count: 100, Window: time.Duration(1+i) * time.Hour}, Algorithm: limiter.GCRA, Noted: true}
			limits = append(limits, l)
			claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("k"), Cost: 1, Value: limiter.KeyOf("ann")})
		}
		decisions := 64 / windows
		s.allowed(claims, decisions)
		s.returns(limits, "ann", decisions)
		for i := range claims {
			s.left(claims[i:i+1], 100)
		}
	}
}

// A refused request notes nothing. A note or a key of another type costs what it concerns.
func TestReturn_ForeignKeys(t *testing.T) {
	s := newTestStore(t)
	limits, ann := unused(2, "ann")
	_, bob := unused(2, "bob")
	s.do("set", noteKey("bob"), "short")
	s.allowed([]limiter.Claim{ann}, 1)
	s.allowed([]limiter.Claim{bob}, 1)
	if d := s.take([]limiter.Claim{{Limit: ann.Limit, Key: ann.Key, Cost: 1, Value: limiter.KeyOf("eve")}}); d.Allowed || s.do("exists", noteKey("eve")).(int64) != 0 {
		t.Errorf("%+v is noted", d)
	}
	s.do("del", noteKey("ann"))
	s.do("rpush", noteKey("ann"), "list")
	s.returns(limits, "ann", 0)
	s.returns(limits, "bob", 0)
	ann.Key = limiter.KeyOf("DE")
	s.allowed([]limiter.Claim{ann}, 1) // its note is a list
	s.do("del", noteKey("ann"))
	s.allowed([]limiter.Claim{ann}, 1)
	box := redisstore.BoxName(ann)
	s.do("del", box)
	s.do("rpush", box, "list")
	s.returns(limits, "ann", 0)
}

func TestStore_ConversionOnRedis(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	limitertest.RunConversion(t, func(t *testing.T) limitertest.Subject {
		s.t = t
		s.empty()
		return limitertest.Subject{Store: s.store, Advance: s.advance, Steps: rounds.Of(20), MinWindow: patient}
	})
}

// Whatever a Redis that is killed keeps, no more is granted afterwards than the model allows: all of it, or nothing.
func TestStore_ConversionWhileRedisIsKilled(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"keeps": {"--appendonly", "yes", "--appendfsync", "always"}, "forgets": nil} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, args...)
			client := connect(t, server.Addr)
			client.Set(t.Context(), redisstore.TestClock, int64(1_800_000_000_000), 0)
			store := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
			limitertest.RunConversion(t, func(t *testing.T) limitertest.Subject {
				return limitertest.Subject{
					Store: store, Steps: rounds.Of(2), MinWindow: patient,
					Advance: func(d time.Duration) {
						if err := client.IncrBy(t.Context(), redisstore.TestClock, d.Milliseconds()).Err(); err != nil {
							t.Errorf("advance: %v", err)
						}
					},
					Disturb: func() bool {
						now, err := client.Get(t.Context(), redisstore.TestClock).Int64()
						if err != nil {
							t.Fatal(err)
						}
						server.Kill()
						server.Restart()
						await.Until(t, "the store decides again", func() bool {
							if client.Set(t.Context(), redisstore.TestClock, now, 0).Err() != nil {
								return false
							}
							nothing := limiter.Permit{ID: [16]byte{1}, At: time.UnixMilli(now)} // is refunded over the connection of decisions
							return store.Refund(t.Context(), claim(1, time.Hour, 1), nothing) == nil
						})
						return args == nil
					},
				}
			})
		})
	}
}

// While clients are cut off, whose calls may or may not have had an effect, no more is granted than what is open
// for certain and what may have been confirmed allow.
func TestStore_ConversionWhileClientsAreKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, killer := connect(t, server.Addr), connect(t, server.Addr)
	store := redisstore.New(client, redisstore.Options{Timeout: patient})
	l := limitertest.LimitOf(limiter.Conversion, "killed.unused:1h", limiter.Rate{Count: 40, Window: time.Hour})
	var open, confirmed, failed atomic.Int64
	var work sync.WaitGroup
	for worker := range 4 {
		work.Go(func() {
			for i := range 300 {
				if i%20 == 19 {
					killer.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes")
				}
				subject := limiter.KeyOf("subject", strconv.Itoa(worker), strconv.Itoa(i))
				var d limiter.Decision
				switch err := store.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1, Value: subject}}, &d); {
				case err != nil:
					failed.Add(1)
				case d.Allowed && i%3 > 0:
					confirmed.Add(1)
					if n, err := store.Return(t.Context(), []*limiter.Limit{l}, subject); err == nil && n == 0 {
						t.Error("nothing was returned of what was granted")
					}
				case d.Allowed:
					open.Add(1)
				}
			}
		})
	}
	work.Wait()
	t.Logf("%d open, %d confirmed, %d calls failed", open.Load(), confirmed.Load(), failed.Load())
	if open.Load() > 40+confirmed.Load() || confirmed.Load() == 0 {
		t.Errorf("%d open and at most %d confirmed subjects", open.Load(), confirmed.Load())
	}
}

// Keys that exist and new ones are decided in one call.
func TestConversion_NewKeysInABatch(t *testing.T) {
	client := connect(t, redistest.Start(t).Addr)
	store := redisstore.New(client, redisstore.Options{Timeout: patient, MaxInFlight: 1, CachedRefusals: -1})
	l := limitertest.LimitOf(limiter.Conversion, "batch.unused:1h", limiter.Rate{Count: 1, Window: time.Hour})
	take := func(n int) (d limiter.Decision) {
		k := limiter.KeyOf("k", strconv.Itoa(n))
		if err := store.Take(t.Context(), []limiter.Claim{{Limit: l, Key: k, Cost: 1}}, &d); err != nil {
			t.Error(err)
		}
		return d
	}
	for old := range 32 {
		take(old)
	}
	for round := range 20 {
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				n := i
				if i%2 > 0 { // every other key is new
					n += 32 * (round + 1)
				}
				if d := take(n); d.Allowed != (n >= 32) {
					t.Errorf("key %d: %+v", n, d)
				}
			})
		}
		all.Wait()
	}
}

const day = 24 * time.Hour

// converting are the windows of a limit with a conversion of 50 %.
func converting(counts map[time.Duration]int64) (limits []*limiter.Limit) {
	for _, window := range []time.Duration{time.Hour, day} {
		if n := counts[window]; n > 0 {
			limits = append(limits, limitertest.LimitOf(limiter.Conversion, "sms.unused:"+window.String(), limiter.Rate{Count: n, Window: window}))
		}
	}
	return limits
}

// claimsUnder are claims on limits for a key and a subject.
func claimsUnder(limits []*limiter.Limit, key, subject string) (claims []limiter.Claim) {
	for _, l := range limits {
		claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(subject)})
	}
	return claims
}

// confirm takes for a subject and returns it.
func (s *testStore) confirm(limits []*limiter.Limit, key, subject string) {
	s.t.Helper()
	s.allowed(claimsUnder(limits, key, subject), 1)
	s.returns(limits, subject, 1)
}

// returns gives back what a subject was granted by so many decisions.
func (s *testStore) returns(limits []*limiter.Limit, subject string, decisions int) {
	s.t.Helper()
	if n, err := s.store.Return(s.t.Context(), limits, limiter.KeyOf(subject)); n != decisions || err != nil {
		s.t.Fatalf("permits of %d decisions are returned, %v; want %d", n, err, decisions)
	}
}

// A key lives as long as what was taken or confirmed, whoever writes it and whatever is beside it in the string.
func TestConversion_KeysLiveAWindow(t *testing.T) {
	for name, counts := range map[string]map[time.Duration]int64{
		"one window": {day: 3}, "two windows": {time.Hour: 3, day: 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClockedTestStore(t)
			limits := converting(counts)
			key := redisstore.BoxName(claimsUnder(limits, "CN", "")[0])
			lives := func() {
				t.Helper()
				if ttl := time.Duration(s.do("pttl", key).(int64)) * time.Millisecond; ttl < day-time.Minute || ttl > day+time.Hour {
					t.Errorf("the key lives for %v; want a window of %v", ttl, day)
				}
			}
			s.allowed(claimsUnder(limits, "CN", "eve"), 1)
			lives()
			s.advance(12 * time.Hour)
			s.returns(limits, "eve", 1)
			s.confirm(limits, "CN", "ann")
			lives()
			s.advance(12 * time.Hour)
			for range 3 { // several requests in one call
				s.takesTogether(limits, "CN")
			}
			lives()
			s.check(s.store.Ban(t.Context(), claimsUnder(limits, "CN", "bob"), time.Minute))
			lives()
		})
	}
}

// takesTogether takes of several keys, of which one exists, in one script call.
func (s *testStore) takesTogether(limits []*limiter.Limit, key string) {
	s.t.Helper()
	errs, ds := s.store.TakeInOneCall(s.t.Context(), [][]limiter.Claim{claimsUnder(limits, key, ""), claimsUnder(limits, "other", ""), claimsUnder(limits, "third", "")})
	for i := range errs {
		if errs[i] != nil {
			s.t.Fatal(errs[i], ds[i])
		}
	}
}

// However much is counted, a window of a key takes at most 0.6 kB.
func TestConversion_IsSmall(t *testing.T) {
	s := newClockedTestStore(t)
	limits := converting(map[time.Duration]int64{day: 1000})
	for i := range 62 { // all buckets
		s.confirm(limits, "CN", "used"+strconv.Itoa(i))
		s.allowed(claimsUnder(limits, "CN", strconv.Itoa(i)), 1)
		s.advance(24 * time.Minute)
	}
	size := s.do("strlen", redisstore.BoxName(claimsUnder(limits, "CN", "")[0])).(int64)
	t.Logf("%d bytes", size)
	if size > 600 || size < 520 {
		t.Errorf("%d bytes; want up to 600", size)
	}
}
