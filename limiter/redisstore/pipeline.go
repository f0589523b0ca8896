package redisstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// A pipeline sends calls to one Redis over one connection. A writer sends the waiting
// calls as one batch, and a reader distributes the replies to the callers. Up to
// Options.MaxInFlight batches are in flight at a time; calls that arrive meanwhile are
// sent together in the next one. A call is not delayed to wait for others, except that
// the writer yields to the goroutines that can run, so that batches are not smaller than
// necessary.
//
// Callers have no timers. A sweep ends the calls whose deadline has passed, and gives up a
// connection on which Redis does not reply in time. What Redis grants to a call after its caller has
// given up is refunded. A connection is opened when there is something to send. If it is lost and no
// call waits, the writer ends.
type pipeline struct {
	store      *Store
	circuit    *circuit // of the client; nil if it has none
	queue      queue
	isRedisson bool
	crossSlot  atomic.Bool // its master of a cluster runs scripts on keys of several slots, as far as is known
	writers    sync.WaitGroup
	background sync.WaitGroup // calls that are sent again

	writeMu   sync.Mutex // held by the writer; guards the fields below
	dialer    wire.Dialer
	conn      *wire.Conn
	lastSent  time.Time
	evaluated []*script // of changes, whose source was sent on conn
	calls     []*call   // being sent
	buf       []byte
}

// newPipeline returns a pipeline to node. It starts no goroutine.
func newPipeline(s *Store, node *redis.Client, at pipelineKey) *pipeline {
	p := &pipeline{store: s, isRedisson: at.redisson}
	p.crossSlot.Store(s.crossSlot && !at.redisson)
	p.dialer.Node, p.dialer.Read = node, p.read
	if b := breakerOf(node); b != nil {
		p.circuit, p.dialer.Masters = b.own, b.masters
		if at.redisson {
			p.circuit = b.redisson
		}
	}
	p.queue.startWriter = func() { p.writers.Go(p.write) }
	p.queue.maxInFlight, p.queue.timeout = s.maxInFlight, s.timeout
	if t := node.Options().ReadTimeout; t > 0 {
		p.queue.timeout = min(s.timeout, t)
	}
	p.queue.writerWake.L = &p.queue.mu
	p.queue.sweepTimer = time.AfterFunc(time.Hour, p.sweep)
	p.queue.sweepTimer.Stop()
	return p
}

// start queues c, of which wait returns the result.
func (p *pipeline) start(ctx context.Context, c *call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.queue.enqueue(c)
}

// wait waits for the result of c, no longer than ctx and the store's timeout allow.
// A call that has not been sent by then is never sent.
func (p *pipeline) wait(ctx context.Context, c *call) error {
	done := ctx.Done()
	if done == nil {
		<-c.done
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-done:
		return p.queue.abandon(c, context.Cause(ctx))
	}
}

// write is the writer goroutine.
func (p *pipeline) write() {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	for p.queue.waitReady(p.conn) {
		if err := p.circuit.acquire(); err != nil {
			p.failWaiting(err)
			continue
		}
		c, err := p.connection()
		if err != nil {
			p.circuit.record(err)
			p.failWaiting(err)
			continue
		}
		runtime.Gosched()
		p.send(c)
	}
	p.closeConn()
}

// connection returns the connection for the writer, opening one if necessary.
func (p *pipeline) connection() (c *wire.Conn, err error) {
	if !p.conn.IsUnusable() {
		if !p.dialer.MustReplace(p.conn) && p.replies() {
			return p.conn, nil
		}
		p.queue.waitDrained()
	}
	p.closeConn()
	p.conn, err = p.dialer.Dial(p.queue.timeout)
	p.evaluated, p.lastSent = p.evaluated[:0], time.Now()
	return p.conn, err
}

// replies reports whether the connection can be expected to get replies. One that was idle for long may have been forgotten by a
// firewall, which tells nobody. So it is pinged before calls are risked on it, for a part of their time.
func (p *pipeline) replies() bool {
	if time.Since(p.lastSent) < p.store.idleLimit {
		return true
	}
	pong := make(chan struct{})
	b := p.store.newBatch()
	b.sentAt, b.pong = time.Now(), pong
	if !p.queue.addInFlight(b, p.conn) {
		return true // it is in use, or its reader has ended, which send notices
	}
	if _, err := p.conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err == nil {
		select {
		case <-pong:
			return true
		case <-time.After(p.queue.timeout / 4):
		}
	}
	p.queue.dropPing(p.conn)
	return false
}

// closeConn closes the connection, unless its reader closes it.
func (p *pipeline) closeConn() {
	if !p.conn.IsUnusable() {
		p.conn.Abort(net.ErrClosed)
	}
	p.conn = nil
	p.crossSlot.Store(p.store.crossSlot && !p.isRedisson) // another Redis may be there next
}

// failWaiting finishes the waiting calls with err.
func (p *pipeline) failWaiting(err error) {
	p.store.reloadCluster()
	p.calls = p.queue.dequeue(p.calls[:0])
	p.fail(p.calls, err)
	clear(p.calls)
}

// fail finishes those of calls that still have a waiting caller.
func (p *pipeline) fail(calls []*call, err error) {
	p.queue.claim(calls)
	for _, c := range calls {
		if c.state == callAnswered {
			c.finish(err)
		}
	}
}

// send sends one batch. Calls that do not fit are sent with the next one, and so are all
// calls if c was lost.
func (p *pipeline) send(c *wire.Conn) {
	p.calls = p.queue.dequeue(p.calls[:0])
	defer clear(p.calls)
	b := p.store.newBatch()
	fit := 0
	for fit < len(p.calls) && b.add(p.calls[fit]) {
		fit++
	}
	if fit < len(p.calls) {
		p.queue.requeue(p.calls[fit:])
	}
	if fit == 0 { // all callers have given up
		p.circuit.record(context.Canceled)
		p.store.reuseBatch(b)
		return
	}
	p.buf = p.appendCommands(p.buf[:0], b)
	b.sentAt, b.version = time.Now(), p.store.refusals.version.Load()
	p.lastSent = b.sentAt
	if !p.queue.addInFlight(b, c) {
		p.circuit.record(context.Canceled)
		p.queue.requeue(p.calls[:fit])
		p.store.reuseBatch(b)
		return
	}
	// From here on the reader owns b. It also answers b if the write fails.
	if _, err := c.Write(p.buf); err != nil {
		c.Abort(err)
	}
	if cap(p.buf) > maxBufferSize {
		p.buf = nil
	}
}

// appendCommands appends the commands of b, one for each group. The first change on a
// connection carries the source of its script: if Redis did not know it, the change would
// be sent again, and come too late.
func (p *pipeline) appendCommands(out []byte, b *batch) []byte {
	for i, g := range b.groups {
		isChange := i < b.changes
		if g.redisson.RedissonName == "" && !isChange {
			out = g.payload.appendCall(out, g.script(p.store))
			continue
		}
		c := g.command(p.store)
		call := c.script.call
		if isChange && !slices.Contains(p.evaluated, c.script) {
			p.evaluated = append(p.evaluated, c.script)
			call = string(wire.AppendBulk(wire.AppendBulk(nil, "EVAL"), c.script.text))
		}
		out = wire.AppendCall(out, call, c.keys, c.args)
	}
	return out
}

// maxBufferSize is the largest command buffer that is kept for reuse.
const maxBufferSize = 256 << 10

// defaultIdleLimit is how long a connection may be idle and is written to all the same: less than after what firewalls and
// load balancers forget connections.
const defaultIdleLimit = 10 * time.Second

// lateTimeout is how long replies that come too late are waited for, and how long it is tried to give back what they grant.
const lateTimeout = time.Minute

// sweep finishes the calls whose deadline has passed, and gives up a connection on which
// Redis does not reply in time: it is only read any more.
func (p *pipeline) sweep() {
	now := time.Now()
	late, hung, earlier := p.queue.expire(now)
	for _, c := range late {
		c.finish(c.err)
	}
	if hung != nil {
		_ = hung.SetWriteDeadline(now.Add(p.queue.timeout)) // the writer may be blocked
		_ = hung.SetReadDeadline(now.Add(lateTimeout))
		p.circuit.record(context.DeadlineExceeded)
		p.store.reloadCluster()
	}
	if earlier != nil {
		earlier.Abort(context.DeadlineExceeded)
	}
}

// close rejects further calls and waits for those in progress.
func (p *pipeline) close() {
	p.queue.close()
	p.writers.Wait()
	p.queue.abortLate()
	p.dialer.Stop()
	p.background.Wait()
	p.queue.sweepTimer.Stop()
}

// read is the reader goroutine of c. It answers the batches on c and, when c is lost, all
// that are in flight.
func (p *pipeline) read(c *wire.Conn) {
	in, answer := wire.NewReader(c), &wire.Reply{}
	var err error
	for err == nil {
		err = p.receive(c, in, answer)
	}
	c.Abort(err)
	err = c.ReadError(err)
	for i, b := range p.queue.removeAll(c) {
		if i == 0 { // the other batches are no further evidence
			p.circuit.record(err)
			p.store.reloadCluster()
		}
		for _, g := range b.groups {
			p.fail(g.calls, err)
		}
	}
	_ = c.Close()
}

// receive reads the replies to one batch and finishes its calls.
func (p *pipeline) receive(c *wire.Conn, in *wire.Reader, answer *wire.Reply) error {
	if err := in.Read(answer); err != nil {
		return err
	}
	b := p.queue.firstInFlight(c)
	if b == nil {
		return wire.ErrProtocol // reply without a request
	}
	if b.pong != nil {
		close(b.pong)
		return p.queue.removeFirst(c)
	}
	var failed, end error
	for i, g := range b.groups {
		if i > 0 {
			if err := in.Read(answer); err != nil {
				return err
			}
		}
		calls := g.calls
		g.calls = g.calls[:0] // a finished call belongs to its caller
		if answer.Err != nil {
			failed = cmp.Or(failed, answer.Err)
			if hasCode(answer.Err, "READONLY") {
				c.MarkStale() // it is not a master any more
			}
			if g.mustResend(p.store, answer.Err) {
				p.resend(g, calls)
				calls = nil
			} else if g.payload.crossSlot {
				answer.Err = p.crossSlotError(answer.Err)
			}
			if g.refunds && errors.Is(answer.Err, errSeveralCalls) {
				p.resendApart(calls)
				calls = nil
			}
		}
		p.queue.claim(calls)
		if i == len(b.groups)-1 {
			p.circuit.record(failed)
			end = p.queue.removeFirst(c)
		}
		b.finishCalls(calls, answer)
		clear(calls)
	}
	if len(b.late) > 0 && p.dialer.Masters.IsCurrent(c.RemoteAddr().String()) {
		p.refundLate(b.late)
	}
	p.store.reuseBatch(b)
	return end
}

// errClient reports that a store was created with an unsupported client.
var errClient = errors.New("a client that is neither a *redis.Client nor a *redis.ClusterClient")

// pipelines has two pipelines for each master, one of them for limiters shared with
// Redisson. So neither a slow node of a cluster nor a slow shared limiter delays other
// calls.
type pipelines struct {
	store         *Store
	own, redisson atomic.Pointer[pipeline] // set if there is only one node

	mu     sync.Mutex // guards the fields below
	byNode map[pipelineKey]*pipeline
	closed bool
}

// A pipelineKey identifies a pipeline.
type pipelineKey struct {
	node     string
	redisson bool
}

// forClaim returns the pipeline to the node that has the key of c.
func (l *pipelines) forClaim(ctx context.Context, c *limiter.Claim) (*pipeline, error) {
	only := &l.own
	if c.RedissonName != "" {
		only = &l.redisson
	}
	if p := only.Load(); p != nil {
		return p, nil
	}
	switch client := l.store.client.(type) {
	case *redis.Client:
		p := l.forNode(client, pipelineKey{"", c.RedissonName != ""})
		only.Store(p)
		return p, nil
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, string(l.store.names.append(nil, c, 0)))
		if err != nil {
			return nil, err
		}
		return l.forNode(node, pipelineKey{node.Options().Addr, c.RedissonName != ""}), nil
	}
	return nil, errClient
}

// forNode returns the pipeline to node, creating it if necessary.
func (l *pipelines) forNode(node *redis.Client, at pipelineKey) *pipeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.byNode[at]
	if p == nil {
		p = newPipeline(l.store, node, at)
		p.queue.closed = l.closed
		l.byNode[at] = p
	}
	return p
}

// reloadCluster has the client of a cluster reload the slots in the background. The
// client itself only does this when it retries a call.
func (s *Store) reloadCluster() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// CallsBySlot returns the addresses of the masters of a cluster that get a script call for each slot, because they know no
// scripts for keys of several slots, as before Redis 7.0, or such a script failed; the others get one for all slots. It is
// known of a master after the first call for several slots, and asked anew of each new connection.
func (s *Store) CallsBySlot() (masters []string) {
	l := s.pipelines
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, p := range l.byNode {
		if s.isCluster && !at.redisson && !p.crossSlot.Load() {
			masters = append(masters, at.node)
		}
	}
	slices.Sort(masters)
	return masters
}

// close closes all pipelines and waits for them.
func (l *pipelines) close() {
	l.mu.Lock()
	l.closed = true
	all := slices.Collect(maps.Values(l.byNode))
	l.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}
