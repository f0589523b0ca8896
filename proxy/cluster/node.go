package cluster

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// heartbeatInterval is the time between heartbeats; memberTimeout is how long a node
	// without heartbeats is still a member.
	heartbeatInterval = 2 * time.Second
	memberTimeout     = 10 * time.Second
	// lostRetention is how long a node that ended without leaving the cluster is remembered.
	lostRetention = time.Hour
	// configTTL is how long the configuration is kept when no node is left: longer
	// than the longest window of a limit.
	configTTL = 400 * 24 * time.Hour
)

//go:embed *.lua
var sources embed.FS

// A keyspace is what a cluster has in Redis: its keys, and the scripts that change them, each of which is atomic.
type keyspace struct {
	rdb     redis.UniversalClient
	prefix  string // of the cluster's own keys
	scripts map[string]*redis.Script
}

func newKeyspace(rdb redis.UniversalClient, prefix string) keyspace {
	k := keyspace{rdb, prefix + ":{cluster}:", map[string]*redis.Script{}}
	for names, before := range map[string]string{
		"answer audit beat begin directives keep lead members report sweep undo": "",
		"commit publish restore":          source("define"),
		"allow done note raise sum swept": source("fence"),
	} {
		for name := range strings.FieldsSeq(names) {
			k.scripts[name] = redis.NewScript(before + source(name))
		}
	}
	return k
}

// source returns the text of a script.
func source(name string) string {
	text, err := sources.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// run runs a script with the keys of these names.
func (k keyspace) run(ctx context.Context, script string, names []string, args ...any) *redis.Cmd {
	keys := view.Each(names, func(name string) string { return k.prefix + name })
	return k.scripts[script].Run(ctx, k.rdb, keys, args...)
}

// errReply reports unexpected data in Redis.
var errReply = errors.New("not understood")

// encode returns v as it is stored: strings, numbers and times, which can always be marshalled.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// decode reads what encode has written.
func decode[T any](text string) (v T, err error) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("%w: %w", errReply, err)
	}
	return v, nil
}

// Options describe a node.
type Options struct {
	Prefix  string // of all keys
	ID      string // unique among the nodes
	Version string // of the program
	Source  string // of its configuration: file or redis
	Seal    bundle.Seal
	// CallsBySlot is redisstore.Store.CallsBySlot.
	CallsBySlot func() []string
}

// A Node is the membership of this process in a cluster. It is safe for
// concurrent use.
type Node struct {
	keyspace
	options Options
	address string // set before the first heartbeat
	started time.Time
	locker  *lock.Locker

	live         atomic.Int64 // number of live nodes as of the last heartbeat
	drifting     atomic.Int64 // number of nodes reported as drifting
	lost         atomic.Int64 // number of lost nodes as of the last heartbeat
	heardSince   atomic.Int64 // when Redis began to reply to every heartbeat, in nanoseconds since started; 0 if it does not
	serving      atomic.Pointer[servedConfig]
	known        atomic.Pointer[knownHistory]
	pushed       atomic.Int64                      // generation of the push it serves; 0 for none
	answered     atomic.Pointer[[]view.NodeAnswer] // the answers to the push through this node
	heartbeatNow chan struct{}                     // buffered: asks for a heartbeat now
	returned     chan struct{}                     // of length 1
	drifted      chan int                          // of length 1
	lostMore     chan struct{}                     // of length 1
	asking       chan struct{}                     // semaphore for questions in progress
}

// A servedConfig describes the configuration that a node serves.
type servedConfig struct {
	number         int64  // of the generation
	hash           string // of the configuration
	agreed         int64  // the last number read from Redis; 0 for none
	withoutCluster bool   // loaded while Redis was unreachable
	// definitionArgs are the script arguments with its definitions.
	definitionArgs []any
	isBehind       bool   // the other nodes serve something newer
	problem        string // why it cannot read what was pushed last; empty if it can
}

// Join returns the Node of this process. It does not contact Redis before Run
// or Agree.
func Join(rdb redis.UniversalClient, o Options) *Node {
	n := &Node{
		keyspace:     newKeyspace(rdb, o.Prefix),
		options:      o,
		started:      time.Now().UTC(),
		locker:       lock.New(rdb),
		heartbeatNow: make(chan struct{}, 1),
		returned:     make(chan struct{}, 1),
		drifted:      make(chan int, 1),
		lostMore:     make(chan struct{}, 1),
		asking:       make(chan struct{}, maxConcurrentQuestions),
	}
	n.live.Store(1)
	n.serving.Store(&servedConfig{})
	n.answered.Store(new([]view.NodeAnswer))
	n.known.Store(&knownHistory{})
	return n
}

// Awaited returns the nodes for which a push through this node waits.
func (n *Node) Awaited() []string {
	return view.Each(view.NotOK(*n.answered.Load()), func(a view.NodeAnswer) string { return a.Node })
}

// Live returns the number of live nodes including this one, as of the last
// heartbeat that Redis answered; 1 before the first.
func (n *Node) Live() int { return int(n.live.Load()) }

// Drift returns the number of other nodes that have served another
// configuration for longer than a reload takes.
func (n *Node) Drift() int { return int(n.drifting.Load()) }

// LostCount returns the number of lost nodes, as of the last heartbeat. See Lost.
func (n *Node) LostCount() int { return int(n.lost.Load()) }

// LostMore signals that a node was lost.
func (n *Node) LostMore() <-chan struct{} { return n.lostMore }

// Drifted delivers each new value of Drift once; values that are not received in
// time are skipped.
func (n *Node) Drifted() <-chan int { return n.drifted }

// Returned signals that Redis is reachable again after this node has loaded a
// configuration without it: the node should reload, to get the common number.
func (n *Node) Returned() <-chan struct{} { return n.returned }

// Run sends heartbeats until ctx is done, and then removes the node, so that the
// others learn of it at once. address is the address of the admin listener; a
// wildcard address is replaced by the host name.
func (n *Node) Run(ctx context.Context, address string) {
	n.address = externalAddress(address)
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	var d driftTracker
	for {
		n.sendHeartbeat(ctx, &d)
		select {
		case <-tick.C:
		case <-n.heartbeatNow:
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			n.rdb.ZRem(ctx, n.prefix+"nodes", n.options.ID) // on failure it times out
			n.rdb.HDel(ctx, n.prefix+"members", n.options.ID)
			n.locker.Close()
			return
		}
	}
}

// sendHeartbeat sends one heartbeat. If Redis does not answer, the last known state is
// kept.
func (n *Node) sendHeartbeat(ctx context.Context, d *driftTracker) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	text, hash := n.heartbeat()
	keys := []string{"nodes", "members", "config", "limits", "lost"}
	began := time.Since(n.started)
	n.heardSince.CompareAndSwap(0, int64(began))
	heard := (began - time.Duration(n.heardSince.Load())).Milliseconds()
	told, err := n.run(ctx, "beat", keys, n.options.ID, memberTimeout.Milliseconds(), text, hash, configTTL.Milliseconds(), lostRetention.Milliseconds(), heard).Int64Slice()
	if err != nil || len(told) != 4 {
		n.heardSince.Store(0)
		return
	}
	live, differing, number, lost := told[0], told[1], told[2], told[3] // number is that of the latest configuration
	n.live.Store(max(live, 1))
	if lost > n.lost.Swap(lost) {
		trySend(n.lostMore, struct{}{})
	}
	if number < n.serving.Load().agreed {
		_, _ = n.Restore(ctx) // on failure retried by the next heartbeat
	}
	n.readHistory(ctx)
	if others, news := d.note(time.Now(), int(differing)); news {
		n.drifting.Store(int64(others))
		trySend(n.drifted, others)
	}
	if now := n.serving.Load(); now.withoutCluster && !now.isBehind {
		trySend(n.returned, struct{}{})
	}
}

// trySend sends v to c without blocking; it is dropped if a value is pending.
func trySend[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// externalAddress returns the address under which other machines reach a listener.
func externalAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return address
}

// Nodes returns the live nodes, ordered by id. A dead node is listed for up to
// ten seconds.
func (n *Node) Nodes(ctx context.Context) ([]view.Member, error) {
	reply, err := n.run(ctx, "members", []string{"nodes", "members"}, memberTimeout.Milliseconds()).Slice()
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	members := make([]view.Member, 0, len(reply))
	for _, row := range reply {
		m, err := readMember(row)
		if err != nil {
			return nil, fmt.Errorf("read nodes: %w", err)
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b view.Member) int { return strings.Compare(a.ID, b.ID) })
	return members, nil
}

// readMember decodes a row of id, time and JSON.
func readMember(row any) (view.Member, error) {
	var m view.Member
	texts, ok := row.([]any)
	if !ok || len(texts) != 3 {
		return m, fmt.Errorf("%w: a row is %v", errReply, row)
	}
	id, _ := texts[0].(string)
	at, _ := texts[1].(string)
	said, _ := texts[2].(string)
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return m, fmt.Errorf("%w: a row is %v", errReply, row)
	}
	if err := json.Unmarshal([]byte(said), &m); err != nil {
		return m, fmt.Errorf("%w: node %s says %s", errReply, id, said)
	}
	m.ID, m.Seen = id, time.UnixMilli(ms).UTC()
	return m, nil
}

// heartbeat returns the content of a heartbeat. The script that compares hashes finds them in this
// text.
func (n *Node) heartbeat() (text, hash string) {
	now := n.serving.Load()
	text = string(encode(view.Member{
		ID: n.options.ID, Address: n.address, Version: n.options.Version, Source: n.options.Source, Hash: now.hash,
		Generation: now.number, Started: n.started, Problem: now.problem, CallsBySlot: n.options.CallsBySlot(),
	}))
	return text, now.hash
}

// Lost returns the nodes that ended without leaving the cluster in the last hour, or that are partitioned, ordered
// by their last sign of life, the latest first. A node that is heard again is not lost any more.
func (n *Node) Lost(ctx context.Context) ([]view.Member, error) {
	rows, err := n.rdb.HGetAll(ctx, n.prefix+"lost").Result()
	if err != nil {
		return nil, fmt.Errorf("read lost nodes: %w", err)
	}
	lost := make([]view.Member, 0, len(rows))
	for id, row := range rows {
		at, said, _ := strings.Cut(row, " ")
		m, err := readMember([]any{id, at, said})
		if err != nil {
			return nil, fmt.Errorf("read lost nodes: %w", err)
		}
		lost = append(lost, m)
	}
	slices.SortFunc(lost, func(a, b view.Member) int { return cmp.Or(b.Seen.Compare(a.Seen), strings.Compare(a.ID, b.ID)) })
	return lost, nil
}
