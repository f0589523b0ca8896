package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A FaultProxy stands between clients and a server and spoils replies. What is
// sent always reaches the server: a lost reply is a command that was executed
// without the client's knowing. It is safe for concurrent use and ends with the
// test.
type FaultProxy struct {
	Addr string // host:port on 127.0.0.1

	listener net.Listener
	pipes    sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held over I/O
	target string     // where new connections go
	mood   faultMode
	change chan struct{} // closed when the mood changes
	lose   []string      // what requests hold whose replies are to be lost yet
	lost   int
	conns  map[net.Conn]struct{}
	closed bool

	forgotten *atomic.Bool // of the connections since the last Forget
}

// A faultMode is what the proxy does to replies.
type faultMode int

const (
	passReplies faultMode = iota
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
		Addr: l.Addr().String(), target: upstream, listener: l,
		change: make(chan struct{}), conns: make(map[net.Conn]struct{}), forgotten: new(atomic.Bool),
	}
	p.pipes.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Hold keeps all replies back until Release, which sends them.
func (p *FaultProxy) Hold() { p.set(holdReplies) }

// Release ends Hold.
func (p *FaultProxy) Release() { p.set(passReplies) }

// Lose makes the reply to the next request that holds word get lost, by cutting
// the connection instead of passing it on. Several words are lost one after
// another.
func (p *FaultProxy) Lose(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = append(p.lose, word)
}

// Lost is how many replies were swallowed so far.
func (p *FaultProxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Forget drops what is sent on the connections that stand now, in both directions, and closes none, as a firewall does
// that has forgotten them.
func (p *FaultProxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten.Store(true)
	p.forgotten = new(atomic.Bool)
}

// Redirect lets new connections go to another server, and cuts the old ones, as
// when a name or an address moves in a failover.
func (p *FaultProxy) Redirect(upstream string) {
	p.mu.Lock()
	p.target = upstream
	p.mu.Unlock()
	p.Cut()
}

// Cut closes all connections.
func (p *FaultProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *FaultProxy) set(m faultMode) {
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
		p.mu.Lock()
		target, forgotten := p.target, p.forgotten
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil || !p.keep(client) || !p.keep(server) {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		doomed := new(atomic.Bool)
		p.pipes.Go(func() {
			defer p.drop(server)
			carry(server, client, forgotten, func(request []byte) bool {
				if p.matches(request) {
					doomed.Store(true)
				}
				return true
			})
		})
		p.pipes.Go(func() {
			defer p.drop(client)
			defer p.drop(server)
			carry(client, server, forgotten, func([]byte) bool { return p.passes(doomed) })
		})
	}
}

// carry copies from one end to the other while pass lets it, and drops what comes once it is forgotten.
func carry(to, from net.Conn, forgotten *atomic.Bool, pass func([]byte) bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !forgotten.Load() {
			if !pass(buffer[:n]) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// matches reports whether the reply to request is the next one to lose.
func (p *FaultProxy) matches(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lose) == 0 || !bytes.Contains(request, []byte(p.lose[0])) {
		return false
	}
	p.lose = p.lose[1:]
	return true
}

// passes waits until a reply may go on; false says that it is lost.
func (p *FaultProxy) passes(doomed *atomic.Bool) bool {
	for {
		p.mu.Lock()
		change := p.change
		free := p.mood == passReplies
		if doomed.Load() {
			p.lost++
			p.mu.Unlock()
			return false
		}
		p.mu.Unlock()
		if free {
			return true
		}
		<-change
	}
}
