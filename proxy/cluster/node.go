package cluster

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
)

const (
	// heartbeatInterval is how often a node gives a sign of life; after it is how long a
	// node that gives none still counts.
	heartbeatInterval = 2 * time.Second
	memberTimeout     = 10 * time.Second
	// configTTL is how long configurations are known of when no node lives: longer
	// than the longest window of a limit.
	configTTL = 400 * 24 * time.Hour
)

var (
	//go:embed beat.lua
	beatScript string
	//go:embed define.lua
	defineScript string
	//go:embed publish.lua
	publishScript string
)

// errReply says that Redis holds what no node writes.
var errReply = errors.New("not understood")

// Options are who a node is.
type Options struct {
	Prefix  string // of all keys
	ID      string // unique among the nodes
	Version string // of the program
	Source  string // of its configuration: file or redis
}

// A Node is this process among those that share its store. It is safe for
// concurrent use.
type Node struct {
	rdb     redis.UniversalClient
	prefix  string // of the cluster's own keys
	store   string // of all keys
	id      string
	version string
	source  string
	address string // set before the first sign of life
	started time.Time
	locker  *lock.Locker

	scripts scripts

	live     atomic.Int64 // how many there are, as far as was last heard
	drifting atomic.Int64 // how many others are told to serve something else
	serving  atomic.Pointer[servedConfig]
	known    atomic.Pointer[knownHistory]
	pushed   atomic.Int64  // the generation that it serves because it was pushed; 0 is none
	beatNow  chan struct{} // of length 1: the next sign of life is due
	returned chan struct{} // of length 1
	drifted  chan int      // of length 1
	asking   chan struct{} // has one value for each question under way
}

// A servedConfig is what a node serves.
type servedConfig struct {
	number int64  // of the generation
	hash   string // of the configuration
	agreed int64  // the last number that Redis knew of; 0 is none
	alone  bool   // Redis could not be asked about it
	// defines are the arguments by which a script writes its definitions.
	defines []any
	behind  bool // the others have moved on without it
}

// scripts are what Redis does for nodes, each in one step.
type scripts struct {
	beat, members, publish, begin, answer, keep, commit, undo, restore *redis.Script
}

func newScripts() scripts {
	return scripts{
		beat: redis.NewScript(beatScript), members: redis.NewScript(membersScript),
		publish: redis.NewScript(defineScript + publishScript),
		begin:   redis.NewScript(beginScript), answer: redis.NewScript(answerScript), keep: redis.NewScript(keepScript),
		commit: redis.NewScript(defineScript + commitScript), undo: redis.NewScript(undoScript),
		restore: redis.NewScript(defineScript + restoreScript),
	}
}

// Join makes the Node of a process. Nothing is asked of Redis before Run or
// Agree.
func Join(rdb redis.UniversalClient, o Options) *Node {
	n := &Node{
		rdb:      rdb,
		prefix:   o.Prefix + ":{cluster}:",
		store:    o.Prefix,
		id:       o.ID,
		version:  o.Version,
		source:   o.Source,
		started:  time.Now().UTC(),
		locker:   lock.New(rdb),
		scripts:  newScripts(),
		beatNow:  make(chan struct{}, 1),
		returned: make(chan struct{}, 1),
		drifted:  make(chan int, 1),
		asking:   make(chan struct{}, maxConcurrentQuestions),
	}
	n.live.Store(1)
	n.serving.Store(&servedConfig{})
	n.known.Store(&knownHistory{})
	return n
}

// ID is the node's own.
func (n *Node) ID() string { return n.id }

// Live is how many nodes there are, this one counted: the number last heard,
// also while Redis is away, and 1 before anything was heard.
func (n *Node) Live() int { return int(n.live.Load()) }

// Drift is how many other nodes serve another configuration than this one, and
// have done so for longer than a reload takes.
func (n *Node) Drift() int { return int(n.drifting.Load()) }

// Drifted tells each new value of Drift once; those that nobody receives in time
// are left out.
func (n *Node) Drifted() <-chan int { return n.drifted }

// Returned tells that Redis answers again after this node has taken up a
// configuration without it: it should reload, to be numbered as the others are.
func (n *Node) Returned() <-chan struct{} { return n.returned }

// Run gives signs of life until ctx is done, and then leaves, so that the others
// need not wait to notice. Operators reach the node at address; one that is
// listened on everywhere is told by the machine's name.
func (n *Node) Run(ctx context.Context, address string) {
	n.address = reachable(address)
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	var d driftTracker
	for {
		n.beat(ctx, &d)
		select {
		case <-tick.C:
		case <-n.beatNow:
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			n.rdb.ZRem(ctx, n.prefix+"nodes", n.id) // or it is dropped after a while
			n.rdb.HDel(ctx, n.prefix+"members", n.id)
			n.locker.Close()
			return
		}
	}
}

// beat gives one sign of life. When Redis does not answer, what was heard last
// still holds.
func (n *Node) beat(ctx context.Context, d *driftTracker) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	text, hash := n.heartbeat()
	keys := []string{n.prefix + "nodes", n.prefix + "members", n.prefix + "config", n.prefix + "limits"}
	live, others, number, err := readHeartbeat(n.scripts.beat.Run(ctx, n.rdb, keys, n.id, memberTimeout.Milliseconds(), text, hash, configTTL.Milliseconds()))
	if err != nil {
		return
	}
	n.live.Store(max(live, 1))
	if number < n.serving.Load().agreed {
		_, _ = n.Restore(ctx) // or at the next sign of life
	}
	n.learn(ctx)
	if others, news := d.note(time.Now(), int(others)); news {
		n.drifting.Store(int64(others))
		offer(n.drifted, others)
	}
	if now := n.serving.Load(); now.alone && !now.behind {
		offer(n.returned, struct{}{})
	}
}

// offer leaves v for whoever receives from c, unless somebody has to hear of
// something already.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// reachable is the address under which others reach what is listened on.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return address
}
