//go:build parsers

package parsers

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A canned connection brings given bytes and then its end, and takes everything.
type canned struct {
	rest    []byte
	reading reading
	asked   chan struct{} // nothing comes before it is closed, unless it is nil
	once    sync.Once
}

func (c *canned) Read(p []byte) (int, error) {
	if c.asked != nil {
		<-c.asked
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *canned) Write(p []byte) (int, error) {
	if c.asked != nil {
		c.once.Do(func() { close(c.asked) })
	}
	return len(p), nil
}

func (*canned) Close() error                     { return nil }
func (*canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }

// served is what Weir's server reads.
func served(raw []byte) reading {
	w := &canned{rest: raw}
	s := &http1.Server{
		Handler: func(x *http1.Exchange) {
			m := message{what: strings.Clone(x.Method()), target: strings.Clone(x.Target()), fields: copied(&x.Fields)}
			if b := x.Body(); b != nil {
				body, err := io.ReadAll(b)
				if err != nil {
					w.reading.why = err.Error()
					x.Abort()
					return
				}
				m.body, m.trailer = string(body), copied(b.Trailer())
			}
			m.sort()
			w.reading.messages = append(w.reading.messages, m)
			x.Begin(200)
			_ = x.Send(nil)
		},
		OnClose: func(_ net.Conn, why error) {
			if why != nil && w.reading.why == "" {
				w.reading.why = why.Error()
			}
		},
	}
	s.ServeConn(w)
	s.Close()
	return w.reading
}

// called is what Weir's client reads.
func called(raw []byte, method string) (r reading) {
	client := &http1.Client{}
	pool := client.NewPool(http1.Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
		return &canned{rest: raw, asked: make(chan struct{})}, nil
	}})
	defer pool.Close()
	c := client.NewCall(nil)
	defer c.Release()
	c.Interim = func(*http1.Response) {}
	c.Begin(method, "a", "/")
	if err := pool.Send(c); err != nil {
		return reading{why: unwrapped(err).Error()}
	}
	m := message{what: strconv.Itoa(c.Response.Status), fields: copied(&c.Response.Fields)}
	body, err := io.ReadAll(c.Body())
	if err != nil {
		return reading{why: err.Error()}
	}
	m.body, m.trailer = string(body), copied(c.Body().Trailer())
	m.sort()
	return reading{messages: []message{m}}
}

func unwrapped(err error) error {
	var fault *http1.CallError
	if errors.As(err, &fault) {
		return fault.Err
	}
	return err
}

func copied(f *http1.Fields) (lines []string) {
	for line := range f.All() {
		lines = append(lines, field(line.Name, line.Value))
	}
	return lines
}
