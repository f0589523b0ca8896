package frontend

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/test/sockettest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A flood takes back each request that it has just sent, over several connections,
// and connects anew whenever one ends.
type flood struct {
	addr        string
	from        string // the address it comes from
	connections int
	perSecond   int // of requests, over all connections

	sent, dialled atomic.Int64
	all           sync.WaitGroup
}

// header is that of a request, as a block that changes no table.
func header() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.example"}, {Name: ":path", Value: "/"}} {
		field.Sensitive = true
		e.WriteField(field)
	}
	return b.Bytes()
}

// batch is how many requests are sent and taken back in one write.
const batch = 50

func (f *flood) start(ctx context.Context) {
	for range f.connections {
		f.all.Go(func() {
			for ctx.Err() == nil {
				f.connect(ctx)
			}
		})
	}
}

// connect floods one connection until it ends.
func (f *flood) connect(ctx context.Context) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.from)}}
	c, err := d.DialContext(ctx, "tcp", f.addr)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f.dialled.Add(1)
	var drained sync.WaitGroup
	drained.Go(func() { io.Copy(io.Discard, c) })
	defer drained.Wait()
	defer c.Close()
	out := bufio.NewWriterSize(c, 64<<10)
	io.WriteString(out, http2.ClientPreface)
	framer := http2.NewFramer(out, nil)
	framer.WriteSettings()
	block := header()
	every := time.NewTicker(time.Second * batch * time.Duration(f.connections) / time.Duration(f.perSecond))
	defer every.Stop()
	for stream := uint32(1); ; stream += 2 {
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true})
		framer.WriteRSTStream(stream, http2.ErrCodeCancel)
		if stream/2%batch != batch-1 {
			continue
		}
		if out.Flush() != nil {
			return
		}
		f.sent.Add(batch)
		<-every.C
	}
}

func TestOffenders_PausesGrowAndEnd(t *testing.T) {
	o, now := newResetTracker(), time.Now()
	one, two := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	offend := func(at time.Time) {
		for range maxWindowResets + 1 {
			o.record(one, at, 1)
			o.record(two, at, 1)
			o.record(two, at, 0)
			o.record(two, at, 0)
		}
	}
	if o.record(one, now, 0); !o.isEmpty() {
		t.Error("an address that takes nothing back is watched")
	}
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000} {
		offend(now)
		if got := o.pause(one, now); got != want*time.Millisecond {
			t.Errorf("pause %v; want %d ms", got, want)
		}
	}
	if got := o.pause(two, now); got != 0 {
		t.Errorf("who takes back a third waits %v; want nothing", got)
	}
	if got := o.pause(one, now.Add(penaltyTTL)); got != 0 {
		t.Errorf("pause %v after a minute; want none", got)
	}
	offend(now.Add(penaltyTTL))
	if got := o.pause(one, now.Add(penaltyTTL)); got != minPause {
		t.Errorf("pause %v; want that of a first offence", got)
	}
	for i := range 2 * maxTracked {
		o.record(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32), now, 1)
	}
	if n := len(o.byAddr); n > maxTracked {
		t.Errorf("%d addresses are watched; want at most %d", n, maxTracked)
	}
}

// Whoever comes back again and again to take back what he asks is let in ever more
// slowly, and others at once.
func TestHTTP2_RepeatOffendersAreSlowed(t *testing.T) {
	var reached atomic.Int64
	f := startServer(t, "h2c: true", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			reached.Add(1)
			<-r.Context().Done() // as a backend's answer that takes its time
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	attack := &flood{addr: f.addr, from: "127.0.0.1", connections: 4, perSecond: 100_000}
	attack.start(ctx)
	offender, other := netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("127.0.0.2/32")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(enough); f.server.resetTracker.pause(offender, time.Now()) < 4*minPause; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the offender is let in as quickly as ever")
		}
	}
	cancel()
	attack.all.Wait()
	if got := f.server.resetTracker.pause(other, time.Now()); got != 0 {
		t.Errorf("others wait %v", got)
	}
	if sent, got := attack.sent.Load(), reached.Load(); got > sent/2 {
		t.Errorf("of %d requests that were taken back %d reached the handler", sent, got)
	}
	began := time.Now()
	f.dial(plainly).WantStatus(200)
	if took := time.Since(began); took < minPause {
		t.Errorf("the offender's next connection is served after %v; want a pause", took)
	}
}

// BenchmarkResetFlood shows what others have to bear while 200,000 requests a second
// are taken back over 20 connections, beside a bare server of net/http. Compare
// weir/bare; each runs for three seconds. Run it with -benchtime 1x.
func BenchmarkResetFlood(b *testing.B) {
	for range b.N {
		bareP95, bareMemory := latencyUnderFlood(b, bareServer(b))
		ours, memory := latencyUnderFlood(b, weirServer(b))
		b.ReportMetric(float64(ours)/float64(bareP95), "p95-ratio")
		b.ReportMetric(float64(memory)/float64(bareMemory), "memory-ratio")
		b.ReportMetric(float64(ours.Microseconds()), "p95-µs")
		b.ReportMetric(float64(bareP95.Microseconds()), "bare-p95-µs")
	}
}

func bareServer(b *testing.B) (addr string) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("x"), 300)) })}
	return startListening(b, s.Serve, func() { s.Close() })
}

func weirServer(b *testing.B) (addr string) {
	const yaml = "listen: {h2c: true}\nroutes:\n  - {name: all, match: {path: /*}, upstream: echo, limits: [{key: client_ip, rate: 1000000/1s}]}\n"
	c := weirtest.Load(b, yaml)
	p, err := proxy.New(b.Context(), proxy.Options{Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(io.Discard)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	s := NewServer(p, c.Listen, zerolog.Nop())
	return startListening(b, s.Serve, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		s.Drain(ctx)
	})
}

func startListening(b *testing.B, serve func(net.Listener) error, end func()) string {
	l := sockettest.Listen(b)
	var served sync.WaitGroup
	served.Go(func() { serve(l) })
	b.Cleanup(func() { end(); served.Wait() })
	return l.Addr().String()
}

// latencyUnderFlood is how long another client waits during a flood, at the 95th percentile,
// and the most memory that is in use meanwhile.
func latencyUnderFlood(b *testing.B, addr string) (p95 time.Duration, memory uint64) {
	runtime.GC()
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
	defer cancel()
	attack := &flood{addr: addr, from: "127.0.0.1", connections: 20, perSecond: 200_000}
	attack.start(ctx)
	other := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}).DialContext}}
	defer other.CloseIdleConnections()
	var took []time.Duration
	var stats runtime.MemStats
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		answer, err := other.Get("http://" + addr + "/")
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		took = append(took, time.Since(began))
		runtime.ReadMemStats(&stats)
		memory = max(memory, stats.HeapInuse+stats.StackInuse)
		<-tick.C
	}
	attack.all.Wait()
	slices.Sort(took)
	b.Logf("%s: %d requests of others, %d taken back over %d connections", addr, len(took), attack.sent.Load(), attack.dialled.Load())
	return took[len(took)*95/100], memory
}

// remoteConn is a connection from an address.
type remoteConn struct {
	net.Conn
	remote net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.remote }

// Addresses of one client are one, and those of clients behind NAT64 are not.
func TestOffenders_AreTheClientsThatLimitsCount(t *testing.T) {
	for sent, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1/32", "[::ffff:192.0.2.1]:1": "192.0.2.1/32", "[64:ff9b::192.0.2.1]:1": "192.0.2.1/32", "[2001:db8::7]:1": "2001:db8::/64",
	} {
		c := remoteConn{remote: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(sent))}
		if got := newResetTracker().prefixOf(c).String(); got != want {
			t.Errorf("%s is watched as %s; want %s", sent, got, want)
		}
	}
}
