package body

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slowBody is a client's body as net/http reads it: pieces come after a while
// each, and reading fails at the deadline.
type slowBody struct {
	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{}

	pieces []string
	every  time.Duration
}

func newSlowBody(every time.Duration, pieces ...string) *slowBody {
	return &slowBody{pieces: pieces, every: every, changed: make(chan struct{}, 100)}
}

func (s *slowBody) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.changed <- struct{}{}
	return nil
}

func (s *slowBody) Read(p []byte) (int, error) {
	piece := time.After(s.every)
	for {
		s.mu.Lock()
		var late <-chan time.Time
		if !s.deadline.IsZero() {
			late = time.After(time.Until(s.deadline))
		}
		s.mu.Unlock()
		select {
		case <-s.changed:
		case <-late:
			return 0, os.ErrDeadlineExceeded
		case <-piece:
			if len(s.pieces) == 0 {
				return 0, io.EOF
			}
			n := copy(p, s.pieces[0])
			if s.pieces[0] = s.pieces[0][n:]; s.pieces[0] == "" {
				s.pieces = s.pieces[1:]
			}
			return n, nil
		}
	}
}

// body makes one of s that waits 30 s.
func (s *slowBody) body(change func(*Reader)) *Reader {
	b := &Reader{From: s, Deadlines: s, Timeout: 30 * time.Second}
	if change != nil {
		change(b)
	}
	return b
}

func many(n int, piece string) []string {
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = piece
	}
	return pieces
}

func TestBody_CutsWhoStandsStill(t *testing.T) {
	kib := strings.Repeat("x", 8000)
	for _, c := range []struct {
		name   string
		drip   func() *slowBody
		change func(*Reader)
		want   error
		after  time.Duration // at most
	}{
		{"flows", func() *slowBody { return newSlowBody(time.Second, many(100, kib)...) }, nil, nil, 102 * time.Second},
		{"slow but steady", func() *slowBody { return newSlowBody(15*time.Second, many(100, kib)...) }, nil, nil, 102 * 15 * time.Second},
		{"stops", func() *slowBody { return newSlowBody(31*time.Second, kib) }, nil, os.ErrDeadlineExceeded, 30 * time.Second},
		{"one byte now and then", func() *slowBody { return newSlowBody(10*time.Second, many(100, "x")...) }, nil, os.ErrDeadlineExceeded, 16 * time.Second},
		{"a byte a second", func() *slowBody { return newSlowBody(time.Second, many(100, "x")...) }, nil, os.ErrDeadlineExceeded, 7 * time.Second},
		{"a lost packet or two", func() *slowBody { return newSlowBody(1500*time.Millisecond, "x", "x", "x") }, nil, nil, 8 * time.Second},
		{"one byte now and then, as gRPC may", func() *slowBody { return newSlowBody(10*time.Second, many(100, "x")...) }, func(b *Reader) { b.IsStream = true }, nil, 1010 * time.Second},
		{"stops, gRPC", func() *slowBody { return newSlowBody(31*time.Second, "x") }, func(b *Reader) { b.IsStream = true }, os.ErrDeadlineExceeded, 30 * time.Second},
		{"no bound", func() *slowBody { return newSlowBody(time.Hour, "x") }, func(b *Reader) { b.Timeout = 0 }, nil, 2 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				drip := c.drip()
				b := drip.body(c.change)
				_, err := io.Copy(io.Discard, b)
				if !errors.Is(err, c.want) {
					t.Errorf("read: %v; want %v", err, c.want)
				}
				if took := time.Since(began); took > c.after {
					t.Errorf("after %v; want at most %v", took, c.after)
				}
				if !drip.deadline.IsZero() {
					t.Error("the deadline still stands when nobody reads")
				}
			})
		})
	}
}

func TestBody_ASlowReaderCostsTheClientNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowBody(time.Millisecond, many(20, "x")...).body(nil)
		for range 20 {
			time.Sleep(time.Minute) // the upstream takes its time
			if _, err := b.Read(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBody_IsFreeOnceTheAnswerHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowBody(time.Hour, "x").body(nil)
		read := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 10))
			read <- err
		}()
		time.Sleep(29 * time.Second)
		b.MarkResponseStarted()
		if err := <-read; err != nil {
			t.Errorf("a read that waited when the answer began: %v", err)
		}
		if _, err := b.Read(make([]byte, 10)); err != io.EOF {
			t.Errorf("a read after the answer began: %v", err)
		}
	})
}

func TestBody_NoDeadlinesAfterTheEnd(t *testing.T) {
	d := newSlowBody(0, "x")
	b := d.body(nil)
	b.End()
	left := d.deadline
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read after the end: %v", err)
	}
	b.MarkResponseStarted()
	if d.deadline != left {
		t.Error("a deadline was set on a connection that is another request's now")
	}
}

func TestBody_Limit(t *testing.T) {
	for _, c := range []struct {
		most int64
		sent string
		want string
		fine bool
	}{
		{5, "", "", true}, {5, "1234", "1234", true}, {5, "12345", "12345", true},
		{5, "123456", "12345", false}, {5, strings.Repeat("1", 1000), "11111", false}, {0, "123456", "123456", true},
	} {
		b := &Reader{From: strings.NewReader(c.sent), maxBytes: c.most}
		got, err := io.ReadAll(b)
		var tooLarge *http.MaxBytesError
		if string(got) != c.want || (err == nil) != c.fine || !c.fine && (!errors.As(err, &tooLarge) || tooLarge.Limit != c.most) {
			t.Errorf("%q, at most %d: %q, %v; want %q", c.sent, c.most, got, err, c.want)
		}
	}
}

func TestBody_StopEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowBody(time.Hour, "x").body(nil)
		b.MarkResponseStarted()
		read := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 10))
			read <- err
		}()
		synctest.Wait()
		b.Stop()
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v; want it ended", err)
		}
		if _, err := b.Read(make([]byte, 10)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("read after that: %v", err)
		}
	})
}
