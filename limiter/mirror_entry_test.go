package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

func TestNote_IsSmall(t *testing.T) {
	if got := unsafe.Sizeof(mirrorEntry{}); got != 40 {
		t.Errorf("a note has %d bytes, want 40", got)
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

// A horizon is kept a thousandth too long at most, and never too short.
func TestPackHorizon(t *testing.T) {
	for ms := int64(1); ms <= 2*MaxWindow.Milliseconds(); ms += 1 + ms/97 {
		if got := unpackHorizon(packHorizon(ms)); got < ms || got > ms+ms/1000 {
			t.Fatalf("%d ms are kept as %d", ms, got)
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
		packed := packHorizon(horizon)
		now := int64(1_800_000_000_000)
		n := newMirrorEntry(now, packed)
		var granted []int64 // times
		for range 300 {
			now += random.Int64N(1 + horizon/int64(1+random.IntN(20)))
			n.advance(now, packed)
			if n.repliedAt() != now {
				t.Fatalf("heard at %d, want %d", n.repliedAt(), now)
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
			want, most := since(granted, now-horizon), since(granted, now-unpackHorizon(packed)-n.slotWidth())
			var counted int
			for i, g := range n.granted {
				if n.slotEnd(i) > now-horizon {
					counted += int(g.count())
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

// A key of which nothing was heard for longer than 32 bits of milliseconds tell, and
// then under a shorter window, has its permits back no earlier.
func TestNote_LongSilence(t *testing.T) {
	long, short := packHorizon(MaxWindow.Milliseconds()), packHorizon(1000)
	now := int64(1_800_000_000_000)
	n := newMirrorEntry(now, long)
	n.grant(3)
	now += math.MaxUint32 + 5_000
	n.advance(now, long)
	n.setReply(7, 10, 1)
	if n.repliedAt() != now || n.waitUntil() != now+10 || n.grantedAt() > now {
		t.Errorf("heard at %d, waits until %d; want %d and 10 more", n.repliedAt(), n.waitUntil(), now)
	}
	var counted int64
	for i, g := range n.granted {
		if n.slotEnd(i) > now-MaxWindow.Milliseconds() {
			counted += g.count()
		}
	}
	if counted != 3 {
		t.Errorf("%d permits count, want 3", counted)
	}
	n.advance(now+1, short)
	if n.granted != [mirrorSlots]packedCount{{3}} {
		t.Errorf("under another window %v count, want 3 as granted last", n.granted)
	}
	if n.refund(now-int64(time.Hour/time.Millisecond), 1) != 0 {
		t.Error("what has come back was given back")
	}
}

// More permits than there is room for count as more than any limit has, and for as long;
// giving some of them back changes nothing.
func TestNote_TooManyPermits(t *testing.T) {
	packed, now := packHorizon(9000), int64(1_800_000_000_000)
	n := newMirrorEntry(now, packed)
	n.grant(maxPackedCount - 1)
	if n.granted[0].count() != maxPackedCount-1 || n.refund(now, 5) != 5 || n.granted[0].count() != maxPackedCount-6 {
		t.Errorf("%d permits count, want %d", n.granted[0].count(), maxPackedCount-6)
	}
	n.grant(MaxCount)
	if n.refund(now, 5); n.granted[0].count() != MaxCount {
		t.Errorf("%d permits count, want %d", n.granted[0].count(), int64(MaxCount))
	}
	n.advance(now+8000, packed)
	n.grant(1)
	n.advance(now+8001, packHorizon(60_000))
	if n.granted[0].count() != MaxCount {
		t.Errorf("under another window %d permits count, want %d", n.granted[0].count(), int64(MaxCount))
	}
}
