package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// pushTTL is how long a push is kept without a sign of the node that pushes, which
	// gives one every pollInterval.
	pushTTL = 2 * time.Second
	// answerTimeout is how long nodes have to answer: longer than
	// memberTimeout, after which a dead node is no longer waited for.
	answerTimeout = 15 * time.Second
	// refusalGrace is how long further answers are collected after a refusal.
	refusalGrace = time.Second
	// rolloutTimeout is how long a push waits for all nodes to serve it.
	rolloutTimeout = 10 * time.Second
	// pollInterval is how often a pushing node polls for answers.
	pollInterval = 50 * time.Millisecond
)

var (
	// ErrOvertaken reports that a push expired, or that another configuration
	// was published in the meantime. Nothing has changed.
	ErrOvertaken = errors.New("push was overtaken; nothing has changed, try again")
	// ErrUnknown reports that the connection to Redis was lost during the
	// commit, so its outcome is unknown.
	ErrUnknown = errors.New("push outcome unknown; see weir history when redis is back")
)

// A Push is a configuration for all nodes.
type Push struct {
	Bundle bundle.Bundle  // with its version, see bundle.Seal
	Config *config.Config // Bundle as loaded on this node
	Author string
	From   int64 // for a rollback, the restored generation
}

// agreed is the answer of a node that can serve the configuration.
const agreed = "ok"

// RefusedError is the error of a push that one or more nodes did not accept. Nothing
// has changed.
type RefusedError struct{ Answers []view.NodeAnswer }

// Error names each node that refused or did not answer.
func (r *RefusedError) Error() string {
	text := "push refused; nothing has changed"
	for _, a := range view.NotOK(r.Answers) {
		text += "; node " + a.String()
	}
	return text
}

// PushInProgressError is the error of a push while another one is in progress.
type PushInProgressError struct {
	Author, Node string // of the other push
	Since        time.Duration
}

// Error names the author of the other push.
func (p *PushInProgressError) Error() string {
	return fmt.Sprintf("%s has been pushing for %s through node %s; wait until that is over", p.Author, view.Duration(p.Since), p.Node)
}

// Push makes all nodes serve p, or none, by a two-phase commit, and returns the generation that p has then, and what each
// node serves. In the first phase
// each live node prepares p and answers; a refusal, or a live node that does not
// answer, ends the push. In the second phase the number, the definitions and the
// history are written in one step, the commit: the nodes serve p as soon as they
// learn of it, even if this node dies. A node that dies during a push leaves it
// either without effect or committed.
//
// The error is PushInProgressError, Refused, ErrOvertaken, ErrUnknown, or an error of
// Redis; only after ErrUnknown something may have changed.
func (n *Node) Push(ctx context.Context, p Push) (generation int64, nodes []view.NodeAnswer, err error) {
	e := Entry{Entry: view.Entry{Hash: p.Bundle.Hash(), Author: p.Author, Node: n.options.ID, From: p.From}, Packed: n.options.Seal.Pack(p.Bundle)}
	if _, err := n.Restore(ctx); err != nil {
		return 0, nil, err
	}
	id := rand.Text()
	seen, at, err := n.begin(ctx, id, e)
	if err != nil {
		return 0, nil, err
	}
	e.Generation, e.At = seen+1, at
	if err := n.decide(ctx, id, e, p.Config); err != nil {
		n.undo(ctx, id)
		return 0, nil, err
	}
	return e.Generation, n.awaitServing(ctx, e.Generation), nil
}

// Try is a dry run of Push: it returns the answers of the nodes and commits
// nothing.
func (n *Node) Try(ctx context.Context, p Push) ([]view.NodeAnswer, error) {
	id := rand.Text()
	e := Entry{Entry: view.Entry{Hash: p.Bundle.Hash(), Author: p.Author, Node: n.options.ID}, Packed: n.options.Seal.Pack(p.Bundle)}
	if _, _, err := n.begin(ctx, id, e); err != nil {
		return nil, err
	}
	defer n.undo(ctx, id)
	return n.collectAnswers(ctx, id)
}

// begin starts a push, if none is in progress. It returns the current number
// and the time.
func (n *Node) begin(ctx context.Context, id string, e Entry) (seen int64, at time.Time, err error) {
	reply, err := n.run(ctx, "begin", []string{"push", "config"}, id, e.Hash, e.Packed, e.Author, n.options.ID, pushTTL.Milliseconds(), n.channel()).Slice()
	switch {
	case err != nil:
		return 0, at, fmt.Errorf("begin push: %w", err)
	case len(reply) == 4:
		author, _ := reply[1].(string)
		node, _ := reply[2].(string)
		ms, _ := reply[3].(int64)
		return 0, at, &PushInProgressError{author, node, time.Duration(ms) * time.Millisecond}
	case len(reply) != 3:
		return 0, at, fmt.Errorf("begin push: %w: %v", errReply, reply)
	}
	seen, _ = reply[1].(int64)
	ms, _ := reply[2].(int64)
	return seen, time.UnixMilli(ms).UTC(), nil
}

// decide waits until all nodes have accepted, and commits.
func (n *Node) decide(ctx context.Context, id string, e Entry, c *config.Config) error {
	for {
		answers, err := n.collectAnswers(ctx, id)
		if err != nil {
			return err
		}
		if len(view.NotOK(answers)) > 0 {
			return &RefusedError{answers}
		}
		done, err := n.commit(ctx, id, e, c)
		if err != nil || done {
			return err
		} // a node has joined in the meantime: wait for its answer too
	}
}

// commit commits the push. It reports false if a node has not answered yet.
func (n *Node) commit(ctx context.Context, id string, e Entry, c *config.Config) (done bool, err error) {
	args := append([]any{id, c.Hash, n.options.ID, e.Generation - 1, configTTL.Milliseconds(), memberTimeout.Milliseconds(), encode(e), historyLength, n.channel()}, definitionArgs(c)...)
	var unknown error // what came of a try before: Redis may have lost a commit of which nodes have learned
	for range 3 {     // idempotent: the script recognizes a repeated commit
		reply, err := n.run(context.WithoutCancel(ctx), "commit", []string{"config", "limits", "removed", "push", "history", "nodes"}, args...).Slice()
		switch {
		case err != nil:
			unknown = fmt.Errorf("%w: %w", ErrUnknown, err)
		case len(reply) != 2:
			return false, fmt.Errorf("%w: %w: %v", ErrUnknown, errReply, reply)
		case reply[0] != int64(0) && reply[0] != int64(1):
			return false, cmp.Or(unknown, ErrOvertaken)
		default:
			return reply[0] == int64(1), nil
		}
	}
	return false, unknown
}

// undo ends a push that was not committed. If that fails, the push expires
// after pushTTL.
func (n *Node) undo(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	n.run(ctx, "undo", []string{"push"}, id, n.channel())
}

// channel returns the channel on which nodes are notified.
func (n *Node) channel() string { return n.prefix + "pushes" }

// definitionArgs returns the arguments with which a script stores the definitions of the limits of a configuration, by
// their IDs: ROUTE.LIMIT, or LIMIT of a common one. Limits in mode off are included: their counts are kept for when
// they are enabled again.
func definitionArgs(c *config.Config) (args []any) {
	for _, l := range c.Limits() {
		args = append(args, l.ID, encode(l.View()))
	}
	return args
}

// driftAfter is how long nodes may serve different configurations before it is
// reported as drift: longer than a reload of all nodes takes.
const driftAfter = 15 * time.Second

// A driftTracker detects configuration drift: other nodes that serve another
// configuration for some time. Only the heartbeat goroutine uses it.
type driftTracker struct {
	since    time.Time // zero while all serve the same
	reported int       // number of drifting nodes reported last
}

// note updates the number of differing nodes. It returns the number to report,
// and whether it has changed.
func (d *driftTracker) note(now time.Time, others int) (reported int, news bool) {
	switch {
	case others == 0:
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = now
	}
	if others > 0 && now.Sub(d.since) < driftAfter {
		others = d.reported
	}
	news, d.reported = others != d.reported, others
	return others, news
}

const (
	// prepareTimeout bounds the preparation of a pushed configuration on a
	// node.
	prepareTimeout = 10 * time.Second
	// retryAfterFailure is the pause before a node retries a pushed configuration
	// that it could not serve.
	retryAfterFailure = 30 * time.Second
)

// A Prepared is a prepared configuration. Exactly one of Install and Discard is
// called, once.
type Prepared interface {
	Config() *config.Config
	Install(number int64)
	Discard()
}

// A Follower applies pushes on a node.
type Follower struct {
	// Prepare prepares a bundle to be served. Its error is reported to the node that
	// pushes.
	Prepare func(ctx context.Context, b bundle.Bundle) (Prepared, error)
	// Serve is called with each committed push before it is installed.
	Serve func(e Entry)
	// Applied is called with the result of each committed push: err is nil if it
	// is served.
	Applied func(e Entry, err error)

	prepared         Prepared      // for the push in progress; nil if none
	preparedHash     string        // of ready
	preparedBeside   *servedConfig // what was served then: a reload since may have read other files of this machine
	answeredID       string        // id of the push that was answered last
	failedGeneration int64         // the generation that could not be served
	retryAt          time.Time
}

// Adopt records that this node serves the pushed entry e; c is its
// configuration on this node.
func (n *Node) Adopt(e Entry, c *config.Config) {
	n.prependHistory(e)
	n.pushed.Store(e.Generation)
	n.serving.Store(&servedConfig{number: e.Generation, hash: e.Hash, agreed: e.Generation, definitionArgs: definitionArgs(c)})
	trySend(n.heartbeatNow, struct{}{})
}

// Follow serves pushed configurations until ctx is done: at once after a
// notification, and within two seconds if the notification is lost. A push that
// was made while this node was partitioned is served as soon as it reconnects.
func (n *Node) Follow(ctx context.Context, f *Follower) {
	published := n.rdb.Subscribe(ctx, n.channel())
	defer published.Close()
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	defer f.discard()
	for {
		n.poll(ctx, f)
		select {
		case <-published.Channel():
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// poll handles the push in progress and the latest committed push. It does
// nothing if Redis does not answer.
func (n *Node) poll(ctx context.Context, f *Follower) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	pushed, under, err := n.pushState(ctx)
	if err != nil {
		return
	}
	// A lower number means that Redis has lost later pushes: see Restore.
	isEarly := f.failedGeneration == pushed && time.Now().Before(f.retryAt) // to retry it
	if pushed > n.pushed.Load() && !isEarly {
		n.serve(ctx, f)
	}
	switch {
	case under == "":
		f.discard()
	case under != f.answeredID:
		n.answer(ctx, f, under)
	}
}

// pushState returns the generation of the latest push, or 0, and the id of the
// push in progress, or "".
func (n *Node) pushState(ctx context.Context) (pushed int64, under string, err error) {
	pipe := n.rdb.Pipeline()
	number, id := pipe.HGet(ctx, n.prefix+"config", "pushed"), pipe.HGet(ctx, n.prefix+"push", "id")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return 0, "", fmt.Errorf("look for pushes: %w", err)
	}
	pushed, _ = number.Int64() // may be absent
	return pushed, id.Val(), nil
}

// serve serves the latest push.
func (n *Node) serve(ctx context.Context, f *Follower) {
	e, err := n.Pushed(ctx)
	if err != nil || e.Generation == 0 {
		return // found again by the next poll
	}
	taken := f.prepared
	if f.prepared == nil || f.preparedHash != e.Hash || f.preparedBeside != n.serving.Load() {
		f.discard()
		if err = e.Unreadable; err == nil {
			taken, err = f.Prepare(ctx, e.Bundle)
		}
	}
	if err != nil {
		f.failedGeneration, f.retryAt = e.Generation, time.Now().Add(retryAfterFailure)
		n.markUnreadable(e)
		f.Applied(e, err)
		return
	}
	f.prepared = nil
	f.Serve(e)
	taken.Install(e.Generation)
	n.Adopt(e, taken.Config())
	f.Applied(e, nil)
}

// markUnreadable lets the other nodes know that this one cannot read e.
func (n *Node) markUnreadable(e Entry) {
	if e.Unreadable == nil {
		return
	}
	now := *n.serving.Load()
	what, _, _ := strings.Cut(e.Unreadable.Error(), "; ")
	now.problem = fmt.Sprintf("cannot read generation %d: %s", e.Generation, what)
	n.serving.Store(&now)
	trySend(n.heartbeatNow, struct{}{})
}

// answer prepares for the push in progress and publishes the result.
func (n *Node) answer(ctx context.Context, f *Follower, id string) {
	values, err := n.rdb.HMGet(ctx, n.prefix+"push", "id", "bundle", "hash").Result()
	if err != nil || len(values) != 3 || values[0] != id {
		return // the push has ended
	}
	packed, _ := values[1].(string)
	hash, _ := values[2].(string)
	f.discard()
	f.preparedBeside = n.serving.Load()
	said := agreed
	b, err := n.options.Seal.Open([]byte(packed), hash)
	if err == nil {
		f.prepared, err = f.Prepare(ctx, b)
	}
	if err != nil {
		f.prepared, said = nil, err.Error()
	}
	f.preparedHash, f.answeredID = hash, id
	if err := n.run(ctx, "answer", []string{"push"}, id, n.options.ID, said).Err(); err != nil {
		f.answeredID = "" // it was not delivered
	}
}

// discard discards the prepared configuration.
func (f *Follower) discard() {
	if f.prepared != nil {
		f.prepared.Discard()
	}
	f.prepared = nil
}
