package proxy

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"
)

// A stream that is gone gets no deadline: net/http would keep it for as long.
func TestStall_NothingIsKeptOfAStream(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	c := &responseWriter{ResponseWriter: w, x: &exchange{}, timeout: &writeTimeout{after: time.Hour, setDeadline: w.SetWriteDeadline}}
	c.Write([]byte("a"))
	c.FlushError()
	c.Write([]byte("b"))
	gone, leave := context.WithCancel(t.Context())
	leave()
	c.setFinalDeadline(gone)
	if w.set != 0 || c.timeout.armed {
		t.Errorf("%d deadlines, armed %v; want nothing left", w.set, c.timeout.armed)
	}
	c.timeout.fire() // too late: the next request may have the writer
	if w.set != 0 {
		t.Error("a stream was cut after its end")
	}
	if c.setFinalDeadline(t.Context()); w.set != 1 {
		t.Errorf("%d deadlines for what is still held for a client that is there; want 1", w.set)
	}
}

type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }
