package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A FaultProxy stands between clients and a server and spoils replies. What is
// sent always reaches the server: a lost reply is a command that was executed
// without the client's knowing. It is safe for concurrent use and ends with the
// test.
type FaultProxy struct {
	Addr string // host:port on 127.0.0.1

	tb       testing.TB
	upstream string
	listener net.Listener
	pipes    sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held over I/O
	mood   mood
	change chan struct{} // closed when the mood changes
	lose   int           // how many replies to lose yet
	lost   int
	conns  map[net.Conn]struct{}
	closed bool
}

// A mood is what the proxy does to replies.
type mood int

const (
	passReplies mood = iota
	holdReplies
)

// NewFaultProxy starts a proxy to upstream that spoils nothing yet.
func NewFaultProxy(tb testing.TB, upstream string) *FaultProxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &FaultProxy{
		Addr: l.Addr().String(), tb: tb, upstream: upstream, listener: l,
		change: make(chan struct{}), conns: make(map[net.Conn]struct{}),
	}
	p.pipes.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Hold keeps all replies back until Release, which sends them.
func (p *FaultProxy) Hold() { p.set(holdReplies) }

// Release ends Hold.
func (p *FaultProxy) Release() { p.set(passReplies) }

// Lose swallows the next n replies and cuts the connection of each.
func (p *FaultProxy) Lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose += n
}

// Lost is how many replies were swallowed so far.
func (p *FaultProxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Cut closes all connections.
func (p *FaultProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *FaultProxy) set(m mood) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mood = m
	close(p.change)
	p.change = make(chan struct{})
}

func (p *FaultProxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Release()
	p.Cut()
	p.pipes.Wait()
}

// keep remembers c so that Cut finds it; false when the proxy is closed.
func (p *FaultProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *FaultProxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *FaultProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil || !p.keep(client) || !p.keep(server) {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		p.pipes.Go(func() {
			defer p.drop(server)
			io.Copy(server, client)
		})
		p.pipes.Go(func() {
			defer p.drop(client)
			defer p.drop(server)
			p.replies(client, server)
		})
	}
}

// replies carries what the server answers, as the mood is.
func (p *FaultProxy) replies(client, server net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 {
			if !p.passes() {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passes waits until a reply may go on; false says that it is lost.
func (p *FaultProxy) passes() bool {
	for {
		p.mu.Lock()
		if p.lose > 0 {
			p.lose--
			p.lost++
			p.mu.Unlock()
			return false
		}
		if p.mood == passReplies {
			p.mu.Unlock()
			return true
		}
		change := p.change
		p.mu.Unlock()
		<-change
	}
}
