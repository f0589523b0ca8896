package limiter

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

func TestNote_IsSmall(t *testing.T) {
	if got := unsafe.Sizeof(mirrorEntry{}); got != 72 {
		t.Errorf("a note has %d bytes, want 72", got)
	}
	if got := unsafe.Sizeof(cell{}); got != 96 {
		t.Errorf("a cell has %d bytes, want 96", got)
	}
}

// What different processors write is in different cache lines.
func TestMemory_LocksShareNoLine(t *testing.T) {
	for what, size := range map[string]uintptr{"a shard": unsafe.Sizeof(shard{}), "a stripe of keys": unsafe.Sizeof(keyStripe[int]{})} {
		if size%lineSize != 0 {
			t.Errorf("%s has %d bytes", what, size)
		}
	}
}

// Whatever was granted and given back when, no permit counts as granted before it was,
// none that counts is missing, and none counts for longer than a third of the horizon
// after it has come back.
func TestNote_NoPermitComesBackEarly(t *testing.T) {
	for round := range uint64(200) {
		random := rand.New(rand.NewPCG(round, 2))
		horizon := 1 + random.Int64N(1<<(10+round%26))
		now := int64(1_800_000_000_000)
		n := mirrorEntry{horizon: horizon, grantedAt: now, repliedAt: now}
		var granted []int64 // times
		for range 300 {
			now += random.Int64N(1 + horizon/int64(1+random.IntN(20)))
			n.advance(now, horizon)
			if n.repliedAt != now {
				t.Fatalf("heard at %d, want %d", n.repliedAt, now)
			}
			switch k := random.IntN(len(granted) + 10); {
			case k > 12 && granted[k-10] > now-horizon: // this one is given back
				if n.refund(granted[k-10], 1) != 1 {
					t.Fatalf("a permit of %d is not known at %d", granted[k-10], now)
				}
				granted = append(granted[:k-10], granted[k-9:]...)
			case k%3 > 0:
				n.grant(1)
				granted = append(granted, now)
			}
			want, most := since(granted, now-horizon), since(granted, now-horizon-n.slotWidth())
			var counted int
			for i, g := range n.granted {
				if n.slotEnd(i) > now-horizon {
					counted += int(g)
				}
			}
			if counted < want || counted > most {
				t.Fatalf("horizon %d: %d permits count, want %d to %d", horizon, counted, want, most)
			}
		}
	}
}

// since is how many times lie after at.
func since(times []int64, at int64) (n int) {
	for _, each := range times {
		if each > at {
			n++
		}
	}
	return n
}

// A key of which nothing was heard for long, and then under a shorter window, has its permits back no earlier.
func TestNote_LongSilence(t *testing.T) {
	long, now := MaxWindow.Milliseconds(), int64(1_800_000_000_000)
	n := mirrorEntry{horizon: long, grantedAt: now, repliedAt: now}
	n.grant(3)
	now += long - 5_000
	n.advance(now, long)
	var counted uint32
	for i, g := range n.granted {
		if n.slotEnd(i) > now-long {
			counted += g
		}
	}
	if counted != 3 {
		t.Errorf("%d permits count, want 3", counted)
	}
	n.advance(now+1, 1000)
	if n.granted != [mirrorSlots]uint32{3} {
		t.Errorf("under another window %v count, want 3 as granted last", n.granted)
	}
	if n.refund(now-int64(time.Hour/time.Millisecond), 1) != 0 {
		t.Error("what has come back was given back")
	}
}

// The log of the README: 5 permits in 60 s, taken at 0, 10, 10 and 30 s.
func TestPermitLog_Timeline(t *testing.T) {
	const length, count = 60_000, 5
	var log permitLog
	for _, row := range []struct {
		at, cost   int64
		left, wait int64 // before the take, in ms
	}{
		{0, 1, 5, 0},
		{10_000, 2, 4, 0},
		{30_000, 1, 2, 0},
		{30_001, 2, 1, 29_999},
		{30_001, 4, 1, 39_999},
		{59_999, 5, 1, 30_001},
		{60_000, 2, 2, 0},
		{60_000, 1, 0, 10_000},
		{89_999, 1, 2, 0},
		{120_000, 5, 4, 29_999},
		{149_999, 5, 5, 0},
	} {
		log.advance(row.at, length)
		if left, wait := log.remaining(count), log.wait(row.at, length, count, row.cost); left != row.left || wait != row.wait {
			t.Fatalf("at %d for %d: %d left, wait %d; want %d and %d", row.at, row.cost, left, wait, row.left, row.wait)
		}
		if row.wait == 0 {
			log.add(row.at, [16]byte{byte(row.at)}, row.cost)
		}
	}
}

// However much is taken, a log has few entries, and what it says is out is
// what was taken.
func TestPermitLog_StaysSmall(t *testing.T) {
	for _, length := range []int64{1, 10, 64, 1000, 3_600_000} {
		var state keyState
		l := Limit{Rate: Rate{Count: MaxCount, Window: time.Duration(length) * time.Millisecond}}
		for now := range int64(2000) {
			at := now * max(1, length/500)
			state.advance(at, &l)
			state.take(at, &Claim{Limit: &l, Cost: 1}, [16]byte{byte(now), byte(now >> 8)})
			var sum int64
			for _, e := range state.entries {
				sum += int64(e.n)
			}
			if sum != state.taken || len(state.entries) > fullLog {
				t.Fatalf("length %d: %d entries with %d permits, %d taken", length, len(state.entries), sum, state.taken)
			}
		}
	}
}
