package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

// Whichever key is lost, nothing fails; and unless the entries themselves are
// gone, nothing more is granted.
func TestStore_HealsLostKeys(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for _, count := range []int64{1, 10, 100, 1000}[:min(rounds.Of(3), 4)] {
		for _, lost := range []struct {
			keys  []string
			grant bool // what is out cannot be known any more
		}{
			{[]string{":value"}, false},
			{[]string{":base"}, false},
			{[]string{":value", ":base"}, false},
			{[]string{":permits"}, true},
			{[]string{":permits", ":base"}, true},
			{[]string{":value", ":permits", ":base"}, true},
		} {
			t.Run(fmt.Sprint(count, lost.keys), func(t *testing.T) {
				s.t = t
				s.empty()
				c := claim(count, 10*time.Second, 1)
				s.allowed(c, int(count))
				for _, key := range lost.keys {
					s.do("del", name(c)+key)
				}
				if lost.grant {
					s.allowed(c, int(count))
				}
				s.denied(c, 10*time.Second)
				s.advance(10 * time.Second)
				s.allowed(c, int(count))
				s.denied(c, 10*time.Second)
			})
		}
	}
}

// A value that does not fit its entries is put right within one window, and a
// limiter never loses permits for good.
func TestStore_HealsDrift(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for _, count := range []int64{5, 50, 200} {
		for _, lie := range []string{"-2", "0", "1", strconv.FormatInt(count, 10), "999999", "garbage"} {
			t.Run(fmt.Sprint(count, lie), func(t *testing.T) {
				s.t = t
				s.empty()
				c := claim(count, 10*time.Second, 1)
				s.allowed(c, int(count)/2)
				s.do("set", name(c)+":value", lie, "keepttl")
				for range 21 { // busy all the time: the keys never die
					s.take(c)
					s.advance(time.Second)
				}
				s.advance(10*time.Second + 200*time.Millisecond)
				s.allowed(c, int(count))
				s.denied(c, 10*time.Second)
			})
		}
	}
}

// One that writes as Redisson does, on the same keys: both count each other.
func TestStore_CountsForeignMembers(t *testing.T) {
	t.Parallel()
	for _, count := range []int64{10, 100, 300} {
		s := newClockedTestStore(t)
		c := claim(count, 10*time.Second, 1)
		var foreign int
		for i := range int(count) {
			if i%2 == 0 {
				s.allowed(c, 1)
				continue
			}
			foreign++
			s.do("zadd", name(c)+":permits", int64(1_800_000_000_000+i), fmt.Sprintf("\x08%08d\x01\x00\x00\x00", i))
			s.do("decrby", name(c)+":value", 1)
			s.advance(2 * time.Millisecond)
		}
		s.left(c, 0)
		d := s.take(c)
		if d.Allowed || d.Wait > 10*time.Second {
			t.Fatalf("%d of %d are foreign: %+v", foreign, count, d)
		}
		s.advance(10*time.Second + 200*time.Millisecond)
		s.allowed(c, int(count))
	}
}

// A negative count of somebody else is a count of nothing.
func TestStore_ForeignNegative(t *testing.T) {
	s := newClockedTestStore(t)
	c := claim(5, 10*time.Second, 1)
	s.allowed(c, 3)
	s.do("zadd", name(c)+":permits", int64(1_800_000_000_000), "\x10abcdefghijklmnop\xfd\xff\xff\xff") // -3
	s.do("zadd", name(c)+":permits", int64(1_800_000_000_000), "\x10abcdefghijklmnoq\x00\x00\x00\x00")
	s.do("zadd", name(c)+":permits", int64(1_800_000_000_000), "xy")
	s.left(c, 2)
	s.allowed(c, 2)
	s.denied(c, 10*time.Second)
	s.advance(10 * time.Second)
	s.allowed(c, 5)
}

// Tens of thousands of foreign entries are read, counted, merged and removed
// without an error.
func TestStore_ForeignCrowd(t *testing.T) {
	t.Parallel()
	for _, expired := range []bool{false, true} {
		s := newClockedTestStore(t)
		c := claim(100_000, 10*time.Second, 1)
		s.allowed(c, 1)
		args := []any{"zadd", name(c) + ":permits"}
		for i := range 20_000 {
			args = append(args, int64(1_800_000_000_000+i/4), fmt.Sprintf("\x10%016d\x01\x00\x00\x00", i))
		}
		s.do(args...)
		s.do("decrby", name(c)+":value", 20_000)
		if expired {
			s.advance(20 * time.Second)
			s.left(c, 100_000)
			s.allowed(c, 1)
			s.left(c, 99_999)
		} else {
			s.advance(6 * time.Second)
			s.allowed(c, 1)
			s.left(c, 79_998)
		}
		if n := s.do("zcard", name(c)+":permits").(int64); n > 129 {
			t.Errorf("expired %v: %d members", expired, n)
		}
	}
}

// Redis's clock decides, whoever calls: in no window by the times that it tells
// are more permits than the rate has.
func TestStore_ManyCallers(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for _, count := range []int64{20, 150} {
		c := claim(count, 200*time.Millisecond, 1)
		c[0].Key = limiter.KeyOf(fmt.Sprint(count))
		times := make(chan int64, 1<<16)
		end := time.Now().Add(600 * time.Millisecond)
		done := make(chan error)
		for range 32 {
			go func() {
				var d limiter.Decision
				for time.Now().Before(end) {
					if err := s.store.Take(t.Context(), c, &d); err != nil {
						done <- err
						return
					}
					if d.Allowed {
						times <- d.At.UnixMilli()
					}
				}
				done <- nil
			}()
		}
		for range 32 {
			s.check(<-done)
		}
		close(times)
		var all []int64
		for at := range times {
			all = append(all, at)
		}
		slices.Sort(all)
		var worst int
		for i := range all {
			n, _ := slices.BinarySearch(all, all[i]+200)
			worst = max(worst, n-i)
		}
		if int64(worst) != count {
			t.Errorf("%d permits in the fullest window of %d, %d in all", worst, count, len(all))
		}
	}
}
