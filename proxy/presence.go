package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A presence is the context of a request over HTTP/1.1: done when its client has
// left. It costs nothing before somebody waits for that.
type presence struct {
	h *http1.Exchange

	mu    sync.Mutex // guards what follows
	gone  bool
	done  chan struct{} // nil: nobody has asked
	after map[*func()]struct{}
}

// Deadline implements context.Context: there is none.
func (*presence) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context: there is none.
func (*presence) Value(any) any { return nil }

// Done implements context.Context.
func (p *presence) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.gone {
			close(p.done)
		} else {
			p.h.Watch(p)
		}
	}
	return p.done
}

// Err implements context.Context.
func (p *presence) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return context.Canceled
	}
	return nil
}

// asked reports whether somebody has waited for p to be done, or has heard that it is.
func (p *presence) asked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone || p.done != nil || p.after != nil
}

// AfterFunc spares contexts that are made from p a goroutine each.
func (p *presence) AfterFunc(f func()) (stop func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		go f()
		return func() bool { return false }
	}
	if p.after == nil {
		p.after = map[*func()]struct{}{}
	}
	p.after[&f] = struct{}{}
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, waits := p.after[&f]
		delete(p.after, &f)
		return waits
	}
}

// Abort implements http1.Aborter: the client has left.
func (p *presence) Abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	if p.done != nil {
		close(p.done)
	}
	for f := range p.after {
		go (*f)()
	}
	p.after = nil
}
