package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/simulate"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// peekBatch is the number of counts read by one call.
	peekBatch = 50
	// namedKeys is the maximum number of keys listed for a limit.
	namedKeys = 5
)

// plan returns what would change if b were served, and which keys would be refused now, according
// to the counts in the store.
func (n *Node) plan(ctx context.Context, b bundle.Bundle) (admin.Plan, error) {
	c, err := n.unpack(ctx, b)
	if err != nil {
		return admin.Plan{}, err
	}
	number, now := n.proxy.Serving()
	p := admin.Plan{Generation: number, Changes: config.Compare(now, c), Refused: []admin.LimitRefusal{}, Warnings: admin.Texts(c.Warnings)}
	next, err := n.proxy.Prepare(ctx, c)
	switch {
	case errors.Is(err, proxy.ErrRestart):
		p.Restart = err.Error()
		return p, nil
	case err != nil:
		return admin.Plan{}, err
	}
	defer next.Discard()
	if n.store.cluster == nil {
		p.Unknown = "the store is memory, whose counts are not listed"
		return p, nil
	}
	p.Warning, _ = n.store.check(ctx) // an error is that of the next call, too
	p.Unknown = proxy.ErrorText(n.refusals(ctx, next, &p))
	return p, nil
}

// unpack returns b as this node would serve it. What is said of it, also of its problems, shows names, and so whoever may only
// read must not put variables of the environment, such as tokens, where they do not stand already. Nor may he choose what this
// machine fetches before it answers.
func (n *Node) unpack(ctx context.Context, b bundle.Bundle) (*config.Config, error) {
	c, err := bundle.Unpack(n.source.machine, b)
	if c == nil || admin.OperatorOf(ctx).Role == admin.Write {
		return c, err
	}
	_, now := n.proxy.Serving()
	if uses := c.OtherUses(now, n.source.machine); len(uses) > 0 {
		return nil, &admin.Problem{Status: http.StatusForbidden, Detail: "the token of " + admin.OperatorOf(ctx).Name + " may only read, and what is served does not name the environment variable " + strings.Join(uses, ", ") + "; write a value, or use a token with role: write"}
	}
	if served := append(now.Fetches(), ""); len(view.AddNew(served, c.Fetches()...)) > len(served) {
		return nil, &admin.Problem{Status: http.StatusForbidden, Detail: "the token of " + admin.OperatorOf(ctx).Name + " may only read, and what is served has no jwks at another URL; leave it out, or use a token with role: write"}
	}
	return c, err
}

// refusals evaluates one more request for every count that the store has under the limits that next changes.
func (n *Node) refusals(ctx context.Context, next *proxy.Prepared, p *admin.Plan) error {
	limits := next.ChangedLimits()
	if p.Whole = len(limits) == 0; p.Whole {
		return nil
	}
	byName, names := map[string]*limiter.Limit{}, map[string]bool{}
	for i, l := range limits {
		byName[l.Name], names[l.Name] = &limits[i], true
	}
	counts, whole, err := n.store.cluster.Counted(ctx, names)
	if err != nil {
		return err
	}
	p.Whole = whole
	configured := view.By(next.Config().Limits(), func(l *config.Limit) string { return l.ID }) // under which stores count
	found := map[string]*admin.LimitRefusal{}
	for some := range slices.Chunk(counts, peekBatch) {
		refused, err := n.peek(ctx, some, byName)
		if err != nil {
			return err
		}
		p.Looked += len(some)
		for _, c := range refused {
			r := found[c.Limit]
			if r == nil {
				id, window, _ := strings.Cut(c.Limit, ":")
				l := configured[id]
				r = &admin.LimitRefusal{Limit: l.FullName() + ":" + window, Key: l.Key.Name}
				found[c.Limit] = r
			}
			if r.Keys++; len(r.Named) < namedKeys {
				r.Named = append(r.Named, next.KeyHash(c.Key))
			}
		}
	}
	for _, l := range limits { // in the order of the configuration
		if r := found[l.Name]; r != nil {
			p.Refused = append(p.Refused, *r)
		}
	}
	return nil
}

// peek returns the counts whose next request would be refused.
func (n *Node) peek(ctx context.Context, counts []cluster.CountedKey, limits map[string]*limiter.Limit) ([]cluster.CountedKey, error) {
	claims := view.Each(counts, func(c cluster.CountedKey) limiter.Claim {
		return limiter.Claim{Limit: limits[c.Limit], Key: c.Key, Cost: 1}
	})
	var d limiter.Decision
	if err := n.store.limits.Peek(ctx, claims, &d); err != nil {
		return nil, fmt.Errorf("inspect counts: %w", err)
	}
	var refused []cluster.CountedKey
	for i, o := range d.Outcomes {
		if !o.Allowed {
			refused = append(refused, counts[i])
		}
	}
	return refused, nil
}

// The limits of a simulation in a process that serves requests.
const (
	simulateWithin  = 3 * time.Minute // including the upload of the log
	simulateLogs    = 256 << 20       // bytes, uncompressed
	simulateKeys    = 400_000         // for each configuration
	simulateStore   = 64 << 20        // bytes, for the keys of each configuration
	simulateMemory  = 256 << 20       // additional bytes in use by the whole simulation
	simulateTop     = 10
	simulateOthers  = "other.yaml" // file name of the other configuration in error messages
	simulateOwnName = "what is served"
)

var (
	errReplaySlow = &admin.Problem{Status: http.StatusRequestTimeout, Detail: fmt.Sprintf("it is not done within %s, in which it leaves most of the processor to requests; send a part of the log, or run weir simulate on the command line", limiter.FormatDuration(simulateWithin))}
	errReplayFull = &admin.Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("it needs more than %d MiB of memory, which belongs to requests here; send a part of the log, or run weir simulate on the command line", simulateMemory>>20)}
	errReplayLong = &admin.Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the log has more than %d MiB when it is unpacked; send a part of it, or run weir simulate on the command line", simulateLogs>>20)}
	errReplayBusy = &admin.Problem{Status: http.StatusTooManyRequests, Detail: "another log is being replayed here; ask again when it is done, or ask another node"}
)

// simulate replays a log with the current configuration, and optionally with another one. It ends
// when the client disconnects.
func (n *Node) simulate(ctx context.Context, q admin.SimulateQuery) (admin.Simulation, error) {
	select {
	case n.replaying <- struct{}{}:
		defer func() { <-n.replaying }()
	default:
		return admin.Simulation{}, errReplayBusy
	}
	ctx, cancel := context.WithTimeoutCause(ctx, simulateWithin, errReplaySlow)
	defer cancel()
	number, now := n.proxy.Serving()
	o := simulate.Options{Format: simulate.Auto, Configs: []*config.Config{withFileName(now, simulateOwnName)}, Host: q.Host, Top: cmp.Or(q.Top, simulateTop)}
	if q.Other != "" {
		other, err := n.otherConfig(ctx, q.Other)
		if err != nil {
			return admin.Simulation{}, err
		}
		o.Configs = append(o.Configs, withFileName(other, simulateOthers))
	}
	var err error
	if o.Names, err = simulate.NewNames(q.Fields, o.Configs...); err != nil {
		return admin.Simulation{}, &admin.Problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if q.Log == nil {
		own, err := n.ownLog()
		if err != nil {
			return admin.Simulation{}, err
		}
		defer own.Close()
		q.Log = own
	}
	p := newThrottle(ctx, q.Log)
	o.Logs = []simulate.Log{{Name: "log", Reader: p}}
	o.Bounds = simulate.Bounds{MaxBytes: simulateLogs, MaxKeys: simulateKeys, MaxStore: simulateStore, Pace: p.wait}
	report, err := simulate.Run(ctx, o)
	if err != nil {
		return admin.Simulation{}, replayProblem(err)
	}
	report.LacksHidden(q.Other)
	s := admin.Simulation{
		Node: n.store.id, LogCounts: report.LogCounts, TookMS: report.Took.Milliseconds(), Generation: number,
		Result: report.Result, Against: report.Against, Notes: report.Notes,
	}
	if report.Against != nil {
		s.Differences = report.Differences()
	}
	return s, nil
}

// replayProblem converts an error of a simulation to a problem for operators. An unknown error is
// one of the log.
func replayProblem(err error) error {
	if known, ok := errors.AsType[*admin.Problem](err); ok {
		return known
	}
	if errors.Is(err, simulate.ErrTooLong) {
		return errReplayLong
	}
	return &admin.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
}

// otherConfig parses another configuration. It may refer to the files of lists, plans and prices that are served. The
// node's own file and what it includes may have secrets, which errors would quote.
func (n *Node) otherConfig(ctx context.Context, text string) (*config.Config, error) {
	b := bundle.Bundle{Main: simulateOthers, Files: map[string]string{}}
	if served := n.source.bundle.Load(); served != nil {
		maps.Copy(b.Files, served.Files)
	} else if own, err := bundle.Pack(n.source.path); err == nil {
		_, now := n.proxy.Serving()
		b.Files = own.Others()
		maps.DeleteFunc(b.Files, func(name, _ string) bool {
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(n.source.path), name)
			}
			return slices.ContainsFunc(now.Globs, func(glob string) bool { is, err := filepath.Match(glob, name); return is || err != nil })
		})
	}
	b.Files[simulateOthers] = text
	return n.unpack(ctx, b)
}

// withFileName returns c with another file name.
func withFileName(c *config.Config, name string) *config.Config {
	other := *c
	other.Files = []string{name}
	return &other
}

// ownLog returns the last part of this node's access log, beginning with a complete line.
func (n *Node) ownLog() (io.ReadCloser, error) {
	if n.access.file == nil {
		return nil, &admin.Problem{Status: http.StatusConflict, Detail: "this weir writes no file of requests; write access_log: {file: access.log}, or send a log"}
	}
	f, err := os.Open(n.access.file.path)
	if err != nil {
		return nil, fmt.Errorf("read access log: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{lastLines(f, admin.MaxLog), f}, nil
}

// lastLines returns what is in the last most bytes of f, from the beginning of a line.
func lastLines(f io.ReadSeeker, most int64) *bufio.Reader {
	r := bufio.NewReader(f)
	if _, err := f.Seek(-most-1, io.SeekEnd); err == nil { // otherwise f is not longer
		_, _ = r.ReadBytes('\n') // a failure is that of what follows, too
	}
	return r
}

const (
	// workPeriod is how long low-priority work runs before it pauses.
	workPeriod = 2 * time.Millisecond
	// maxPause bounds one pause, in case the process was suspended and the measured time was not
	// work.
	maxPause = 100 * time.Millisecond
)

// A throttle throttles low-priority work: after every two milliseconds of work it pauses, so that
// requests can use the processor. It ends the work when its context is done, or when it uses too
// much memory. It also wraps the reader of the work's input, because waiting for input is not work.
type throttle struct {
	io.Reader
	ctx       context.Context
	share     float64   // the share of one core that the work may use
	workStart time.Time // start of the current period of work
	liveHeap  []metrics.Sample
	maxHeap   uint64
}

func newThrottle(ctx context.Context, from io.Reader) *throttle {
	p := &throttle{Reader: from, ctx: ctx, share: cpuShare(runtime.GOMAXPROCS(0)), liveHeap: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}, workStart: time.Now()}
	p.maxHeap = p.inUse() + simulateMemory
	return p
}

// cpuShare returns the share of one core that may be used: an eighth of all cores, but at least a
// quarter and at most the whole of one core.
func cpuShare(cores int) float64 { return min(max(0.25, float64(cores)/8), 1) }

// pauseFor returns the pause after some time of work.
func pauseFor(worked time.Duration, share float64) time.Duration {
	return min(time.Duration(float64(worked)*(1/share-1)), maxPause)
}

// Read implements io.Reader.
func (t *throttle) Read(b []byte) (int, error) {
	began := time.Now()
	n, err := t.Reader.Read(b)
	t.workStart = t.workStart.Add(time.Since(began))
	if over := context.Cause(t.ctx); over != nil {
		return 0, over
	}
	return n, err
}

// wait pauses if it is time to.
func (t *throttle) wait() error {
	worked := time.Since(t.workStart)
	if worked < workPeriod {
		return nil
	}
	if t.inUse() > t.maxHeap {
		return errReplayFull
	}
	select {
	case <-time.After(pauseFor(worked, t.share)):
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
	t.workStart = time.Now()
	return nil
}

// inUse returns the live heap size as of the last garbage collection.
func (t *throttle) inUse() uint64 {
	metrics.Read(t.liveHeap)
	return t.liveHeap[0].Value.Uint64()
}
