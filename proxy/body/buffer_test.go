package body

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBuffers_AddUp(t *testing.T) {
	a, b, c := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("192.0.2.3/32")
	all := NewBudget(8 << 10)
	for _, s := range []struct {
		client netip.Prefix
		own, n int64
		want   bool
	}{
		{a, 0, 2 << 10, true},       // an address alone may have more than its share
		{a, 2 << 10, 1 << 10, true}, // with one body
		{a, 0, 1, false},            // and not with two
		{b, 0, 512, true},
		{b, 0, 512, true},
		{b, 0, 1, false},
		{b, 1024, 3<<10 + 1, false}, // the last eighth is for bodies that begin
		{b, 1024, 3 << 10, true},
		{c, 0, 1<<10 + 1, false}, // more than there is
		{c, 0, 1 << 10, true},
		{netip.Prefix{}, 0, 1, false},
	} {
		if got := all.Reserve(s.client, s.own, s.n); got != s.want {
			t.Errorf("%d more for %s, which has %d of its own = %v; %d of %d are used", s.n, s.client, s.own, got, all.InUse(), all.max)
		}
	}
	all.Release(a, 3<<10)
	all.Release(b, 4<<10)
	all.Release(c, 1<<10)
	if all.InUse() != 0 || len(all.byClient) != 0 {
		t.Errorf("%d bytes of %d addresses are left; want none", all.InUse(), len(all.byClient))
	}
}

// What is counted for a buffer is what the allocator takes for it, or little more.
func TestBuffers_CountWhatIsAllocated(t *testing.T) {
	for n := int64(1); n < 300_000; n += 1 + n/512 {
		taken := int64(cap(slices.Grow([]byte(nil), int(n)))) // rounded up to the size that the allocator has
		if got := allocated(n); got < taken || got > taken+taken/4+32 {
			t.Fatalf("a buffer of %d bytes is counted as %d; it takes %d", n, got, taken)
		}
	}
}

func TestBuffer_ReadsWhatCame(t *testing.T) {
	for _, length := range []int{0, 1, 100, 4095, 4096, 4097, 60_000, 65_536, 65_537, 100_000} {
		body := strings.Repeat("x", length)
		for _, announced := range []int64{-1, int64(length)} {
			b := Buffer{Budget: NewBudget(1 << 20)}
			got, err := b.ReadAll(iotest.HalfReader(strings.NewReader(body)), announced, 100_000, 0)
			if err != nil || string(got) != body || b.Budget.InUse() != b.reserved {
				t.Errorf("%d bytes, %d announced: %d bytes, %d of %d counted, %v", length, announced, len(got), b.reserved, b.Budget.InUse(), err)
			}
			if want := allocated(int64(cap(got))); b.reserved != want || announced >= 0 && cap(got) > length || cap(got) > max(4*length, initialBuffer) {
				t.Errorf("%d bytes, %d announced: a buffer of %d bytes counted as %d; want %d", length, announced, cap(got), b.reserved, want)
			}
			if b.Release(); b.Budget.InUse() != 0 {
				t.Errorf("%d bytes are left taken", b.Budget.InUse())
			}
		}
	}
	b := Buffer{Budget: NewBudget(16 << 10)}
	if _, err := b.ReadAll(bytes.NewReader(make([]byte, 20_000)), 20_000, 20_000, 0); !errors.Is(err, ErrFull) {
		t.Errorf("more than there is: %v", err)
	}
	b = Buffer{Budget: NewBudget(16 << 10)}
	if _, err := b.ReadAll(iotest.ErrReader(io.ErrUnexpectedEOF), -1, 100, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// A body takes little before its first bytes are there, and the buffer of whoever reads it counts
// as well.
func TestBuffer_CountsBeforeItReads(t *testing.T) {
	var counted []int64
	b := Buffer{Budget: NewBudget(1 << 20)}
	r := readerFunc(func(p []byte) (int, error) {
		counted = append(counted, b.Budget.InUse())
		return len(p), nil
	})
	if _, err := b.ReadAll(io.LimitReader(r, 60_000), 60_000, 64<<10, 1000); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1000 + 4<<10, 1000 + 64<<10}; !slices.Equal(counted, want) {
		t.Errorf("counted %d before the reads, want %d", counted, want)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
