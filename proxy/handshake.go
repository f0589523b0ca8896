package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// A handshaker is a listener whose connections have TLS behind them. Those that
// speak HTTP/1 are watched inside of TLS; see conn. Those that speak HTTP/2 are
// handed to net/http as it knows them.
type handshaker struct {
	net.Listener
	config *tls.Config
	within time.Duration // for one handshake
	stall  time.Duration
	waits  func(context.Context, net.Conn) // before a handshake
	log    zerolog.Logger

	accepted chan accepted
	ctx      context.Context // ends with the listener
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

// An accepted is what Accept returns.
type accepted struct {
	net.Conn
	err error
}

// start begins to take connections. Close ends what it started.
func (h *handshaker) start() *handshaker {
	h.accepted = make(chan accepted)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.all.Go(h.accept)
	return h
}

// Accept returns the next connection whose handshake is done.
func (h *handshaker) Accept() (net.Conn, error) {
	select {
	case a := <-h.accepted:
		return a.Conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close takes no more connections and gives up handshakes under way.
func (h *handshaker) Close() error {
	h.cancel()
	err := h.Listener.Close()
	h.all.Wait()
	return err
}

// accept lets each connection have its handshake at its own pace.
func (h *handshaker) accept() {
	for {
		c, err := h.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			h.hand(accepted{err: err}) // net/http waits before it asks again
			continue
		}
		h.all.Go(func() { h.shake(c) })
	}
}

// hand gives a to Accept, or reports that nobody asks any more.
func (h *handshaker) hand(a accepted) bool {
	select {
	case h.accepted <- a:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *handshaker) shake(c net.Conn) {
	h.waits(h.ctx, c)
	ctx, cancel := context.WithTimeout(h.ctx, h.within)
	defer cancel()
	t := tls.Server(c, h.config)
	if err := t.HandshakeContext(ctx); err != nil {
		h.log.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("tls handshake failed")
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && http1(plain.RecordHeader[:]) {
			h.tell(plain.Conn)
		}
		c.Close()
		return
	}
	if t.ConnectionState().NegotiatedProtocol == proof {
		t.Close() // it has seen what it wanted to see
		return
	}
	var ready net.Conn = t
	if t.ConnectionState().NegotiatedProtocol != "h2" {
		ready = secureConn{newConn(t, h.stall), t}
	}
	if !h.hand(accepted{Conn: ready}) {
		t.Close()
	}
}

// http1 reports whether a connection begins as one of HTTP/1 without TLS does.
func http1(begin []byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}, string(begin))
}

// tell says to a client that speaks HTTP where HTTPS is spoken what is wrong.
func (h *handshaker) tell(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(h.stall)) // nothing depends on it
	const text = "This is a port for HTTPS.\n"
	r := http.Response{
		StatusCode: http.StatusBadRequest, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
	_ = r.Write(c)
}
