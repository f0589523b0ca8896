package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// reported has s hear of n grants of claims by somebody else, all made now.
func (s *testStore) reported(claims []limiter.Claim, n int) []limiter.Permit {
	permits := make([]limiter.Permit, n)
	for i := range permits {
		permits[i] = limiter.Permit{ID: [16]byte{byte(i + 1), byte(i >> 8), 9}, At: time.Now()}
		s.store.Report(claims, permits[i])
	}
	return permits
}

// quiet waits until there is nothing left to report.
func (s *testStore) quiet() {
	s.t.Helper()
	s.until("everything is reported", func() bool { return s.store.Unreported() == 0 })
}

func algorithms() []limiter.Algorithm {
	return []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Concurrent}
}

// What is reported counts, whatever is left, beside what is there.
func TestReport_Counts(t *testing.T) {
	t.Parallel()
	for _, a := range algorithms() {
		for _, count := range []int64{10, 1000} {
			t.Run(fmt.Sprint(a, count), func(t *testing.T) {
				s := newClockedTestStore(t)
				c := claim(count, time.Hour, 2)
				c[0].Limit.Algorithm = a
				s.allowed(c, 1)
				s.reported(c, 3)
				s.quiet()
				s.left(c, count-8)
				s.reported(c, int(count/2))
				s.quiet()
				s.left(c, 0)
				if d := s.take(c); d.Allowed || d.Wait <= 0 || d.Wait > c[0].Limit.Horizon() {
					t.Errorf("overdrawn: %+v, want a refusal within the horizon", d)
				}
				s.advance(2 * time.Hour)
				s.left(c, count)
			})
		}
	}
}

// The first decision over a window knows what is reported of it, whether or not
// anybody had the time to tell Redis before.
func TestReport_ComesBeforeTheNextDecision(t *testing.T) {
	s := newTestStore(t)
	for i := range 50 {
		c := claim(10, time.Hour, 1)
		c[0].Key = limiter.KeyOf(fmt.Sprint(i))
		s.reported(c, 7)
		if d := s.take(c); !d.Allowed || d.Outcomes[0].Remaining != 2 {
			t.Fatalf("after 7 of 10 were reported: %+v, want 2 left", d)
		}
	}
}

// A report is as old as the grant: it comes back when that would have.
func TestReport_IsAsOldAsTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisstore.NewReports()
		c := claim(10, time.Minute, 3)
		r.Add(c, limiter.Permit{ID: [16]byte{1}})
		time.Sleep(20 * time.Second)
		r.Add(c, limiter.Permit{ID: [16]byte{2}})
		time.Sleep(5 * time.Second)
		if got, want := r.Elapsed(c), []time.Duration{25 * time.Second, 5 * time.Second}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("ages %v, want %v", got, want)
		}
	})
}

func TestReport_ComesBackWithTheGrant(t *testing.T) {
	s := newClockedTestStore(t)
	c := claim(10, time.Minute, 1)
	s.tellAged(c, 4, 40*time.Second)
	s.tellAged(c, 3, 10*time.Second)
	s.tellAged(c, 9, 61*time.Second) // has come back
	s.left(c, 3)
	s.advance(19 * time.Second)
	s.left(c, 3)
	s.advance(time.Second)
	s.left(c, 7)
	s.advance(30 * time.Second)
	s.left(c, 10)
}

// deniedByReports is denied by what was reported, which may have got a second older on its way to Redis.
func (s *testStore) deniedByReports(claims []limiter.Claim, wait time.Duration) {
	s.t.Helper()
	if d := s.take(claims); d.Allowed || d.Wait <= wait-time.Second || d.Wait > wait {
		s.t.Fatalf("allowed %v wait %v, want a refusal with wait %v", d.Allowed, d.Wait, wait)
	}
}

// tellAged reports n grants that were made so long ago.
func (s *testStore) tellAged(claims []limiter.Claim, n int, age time.Duration) {
	s.t.Helper()
	for i := range n {
		p := limiter.Permit{ID: [16]byte{byte(i + 1), byte(n)}}
		s.check(s.store.TellAged(s.t.Context(), claims, p, age))
	}
}

// A log that hears of a grant twice, because a reply was lost, counts it once.
func TestReport_TwiceIsOnce(t *testing.T) {
	s := newClockedTestStore(t)
	c := claim(10, time.Minute, 2)
	s.tellAged(c, 1, time.Second)
	s.tellAged(c, 1, time.Second)
	s.left(c, 8)
}

// What is withdrawn before Redis heard of it is not reported, once.
func TestReport_IsWithdrawn(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	s.server.Kill()
	c := claim(10, time.Hour, 1)
	permits := s.reported(c, 3)
	if !s.withdrawn(c, permits[1]) || s.withdrawn(c, permits[1]) {
		t.Error("what Redis has not heard of is not withdrawn, or twice")
	}
	s.server.Restart()
	s.quiet()
	s.left(c, 8)
	if s.withdrawn(c, permits[0]) {
		t.Error("what Redis has heard of is withdrawn")
	}
}

// withdrawn withdraws p and reports whether it was pending.
func (s *testStore) withdrawn(c []limiter.Claim, p limiter.Permit) bool {
	return len(s.store.Withdraw(c, p)) == 0
}

// What is withdrawn while Redis is being told of it is given back, also if Redis was not reached.
func TestReport_IsGivenBackWhileItIsSent(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range append(algorithms(), limiter.SlidingLog) {
		t.Run(a.String(), func(t *testing.T) {
			s.t = t
			c := claim(10, 1000*time.Hour, 3)
			c[0].Limit.Algorithm, c[0].Key = a, limiter.KeyOf(a.String())
			withdrawn := func(p limiter.Permit) error {
				return s.store.TellAnd(t.Context(), c, p, func() {
					if !s.withdrawn(c, p) || s.withdrawn(c, p) {
						t.Error("what is being sent is not withdrawn, or twice")
					}
				})
			}
			s.check(withdrawn(limiter.Permit{ID: [16]byte{1}}))
			s.left(c, 10)
			s.server.Kill()
			if withdrawn(limiter.Permit{ID: [16]byte{2}}) == nil {
				t.Error("Redis is gone, and was told")
			}
			s.server.Restart()
			s.until("the client dials again", func() bool { return s.client.Ping(t.Context()).Err() == nil }) // for a second it may refuse to
			s.check(s.store.TellAged(t.Context(), c, limiter.Permit{ID: [16]byte{3}}, 0))
			s.left(c, 7)
		})
	}
}

// A part that is withdrawn leaves the rest taken.
func TestReport_KeepsWhatIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			s.t = t
			c, part := claim(10, 1000*time.Hour, 5), claim(10, 1000*time.Hour, 2)
			c[0].Limit.Algorithm, part[0].Limit.Algorithm = a, a
			s.server.Kill()
			p := s.reported(c, 1)[0]
			if !s.withdrawn(part, p) || s.withdrawn(part, p) {
				t.Error("a part is not withdrawn, or twice")
			}
			s.server.Restart()
			s.until("the part is given back", func() bool {
				var d limiter.Decision
				return s.store.Peek(t.Context(), c, &d) == nil && d.Outcomes[0].Remaining == 7
			})
		})
	}
}

// partsWithdrawn is a store whose server is gone, with a claim of 5 of 1,000 that was granted n times, of which 2 were withdrawn
// each time.
func partsWithdrawn(t *testing.T, n int) (s *testStore, c []limiter.Claim) {
	t.Helper()
	s = newOwnTestStore(t)
	s.server.Kill()
	c = claim(1000, 1000*time.Hour, 5)
	for _, p := range s.reported(c, n) {
		if !s.withdrawn(claim(1000, 1000*time.Hour, 2), p) {
			t.Fatal("a part is not withdrawn")
		}
	}
	return s, c
}

// What was withdrawn of a grant that later ones are merged into is not reported either.
func TestReport_PartOfWhatIsMerged(t *testing.T) {
	t.Parallel()
	s, c := partsWithdrawn(t, 128)
	s.reported(c, 1)
	s.server.Restart()
	s.quiet()
	s.left(c, 1000-128*3-5)
}

// What was withdrawn in part is refunded in a few script calls: decisions about the window wait for them.
func TestReport_PartsAreRefundedTogether(t *testing.T) {
	t.Parallel()
	s, c := partsWithdrawn(t, 100)
	s.server.Restart()
	s.quiet()
	if n := s.scripts(); n == 0 || n > 20 {
		t.Errorf("%d calls of scripts for 100 refunds; want a few", n)
	}
	s.left(c, 1000-100*3)
}

// A value that was used counts until that is withdrawn, and of several uses until the last two are, if it has no earlier one.
func TestReport_UsesOfAValue(t *testing.T) {
	t.Parallel()
	for uses, withdrawn := range map[int]int{1: 1, 2: 1, 3: 3, 5: 2} {
		t.Run(fmt.Sprint(uses, withdrawn), func(t *testing.T) {
			t.Parallel()
			s := newOwnTestStore(t)
			s.server.Kill()
			c, other := oneOf(limiter.Distinct), oneOf(limiter.Distinct)
			other[0].Value = limiter.KeyOf("bob")
			permits := s.reported(c, uses)
			if got := s.store.Ungranted(c); got > 3 {
				t.Errorf("%d uses of one value are remembered, want at most 3", got)
			}
			for _, p := range permits[uses-withdrawn:] {
				s.store.Withdraw(c, p)
			}
			s.server.Restart()
			s.quiet()
			s.left(other, map[bool]int64{true: 1}[uses == 1])
		})
	}
}

// A limiter that Java programs share is told as they would write it.
func TestReport_ReachesRedisson(t *testing.T) {
	s := newTestStore(t)
	c := claim(10, time.Hour, 1)
	c[0].RedissonName = "demo"
	s.do("hset", "demo", "rate", 5, "interval", 3_600_000, "type", 0)
	s.allowed(c, 1)
	s.reported(c, 3)
	s.quiet()
	if got := s.do("get", "{demo}:value"); got != "1" {
		t.Errorf("the value is %v, want 1 of 5", got)
	}
	if got := s.do("zcard", "{demo}:permits"); got != int64(4) {
		t.Errorf("%v entries, want 4", got)
	}
}

// A ban outlives a report.
func TestReport_LeavesBans(t *testing.T) {
	s := newTestStore(t)
	c := claim(10, time.Hour, 1)
	s.check(s.store.Ban(t.Context(), c, time.Hour))
	s.reported(c, 1)
	s.quiet()
	if d := s.take(c); d.Allowed || !d.Outcomes[0].Banned {
		t.Errorf("a banned key after a report: %+v", d)
	}
}

// However much is granted meanwhile, what is remembered is bounded, and a key
// stays small.
func TestReport_IsBounded(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	s.server.Kill()
	c := claim(100_000, time.Hour, 1)
	s.reported(c, 5000)
	if got := s.store.Ungranted(c); got > 128 {
		t.Errorf("%d grants of one window are remembered, want at most 128", got)
	}
	s.server.Restart()
	s.quiet()
	s.left(c, 95_000)
	s.allowed(c, 1)
	if n := s.do("zcard", name(c)+":permits").(int64); n > 129 {
		t.Errorf("%d entries in Redis, want at most 129", n)
	}
}

// What is to be reported when a process ends in peace is.
func TestReport_CloseTells(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	s.server.Kill()
	c := claim(10, time.Hour, 1)
	other := redisstore.New(connect(t, s.server.Addr), redisstore.Options{Timeout: patient, CachedRefusals: -1})
	other.Report(c, limiter.Permit{ID: [16]byte{1}})
	s.server.Restart()
	other.Close()
	s.left(c, 9)
}

// So is all that Redis could not be asked to refund.
func TestReport_CloseRefunds(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	other := redisstore.New(connect(t, s.server.Addr), redisstore.Options{Timeout: patient, CachedRefusals: -1, Grace: time.Minute})
	c := claim(1000, time.Hour, 1)
	var permits []limiter.Permit
	for range 300 {
		var d limiter.Decision
		s.check(other.Take(t.Context(), c, &d))
		permits = append(permits, d.Permit)
	}
	s.do("config", "set", "maxmemory", 1)
	for _, p := range permits {
		if other.Refund(t.Context(), c, p) == nil {
			t.Fatal("refunded, by a Redis that is full")
		}
	}
	s.until("it is known that Redis is full", func() bool { return !other.Available() })
	s.do("config", "set", "maxmemory", 0)
	other.Close()
	s.left(c, 1000)
}

// It is known how many permits Redis has heard of, each window by itself, and how
// many were too many to be remembered.
func TestReport_TellsHowMany(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	s.server.Kill()
	c := append(claim(10, time.Hour, 2), claim(100, 24*time.Hour, 2)...)
	s.reported(c, 3)
	if heard, lost := s.store.Reported(); heard != 0 || lost != 0 {
		t.Errorf("%d heard, %d lost; want none yet", heard, lost)
	}
	s.server.Restart()
	s.quiet()
	if heard, lost := s.store.Reported(); heard != 12 || lost != 0 {
		t.Errorf("%d heard, %d lost; want 12, of two windows", heard, lost)
	}
	s.server.Kill()
	many := claim(10, time.Hour, 2)
	for i := range 50_003 {
		binary.LittleEndian.PutUint32(many[0].Key[:], uint32(i))
		s.store.Report(many, limiter.Permit{ID: [16]byte{1}})
	}
	if _, lost := s.store.Reported(); lost != 6 {
		t.Errorf("%d lost; want 6, of the three windows without room", lost)
	}
}

// What has expired in an outage that is longer than the window is not reported with what is granted later.
func TestReport_ForgetsWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisstore.NewReports()
		c := claim(60, time.Minute, 1)
		for i := range 600 {
			r.Add(c, limiter.Permit{ID: [16]byte{byte(i), byte(i >> 8)}})
			time.Sleep(time.Second)
		}
		if n := r.Granted(c); n > 60 {
			t.Errorf("%d permits are reported of the last minute, in which 60 were granted", n)
		}
	})
}
