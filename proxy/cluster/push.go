package cluster

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// pushTTL is how long a push outlives a node that dies while it pushes.
	pushTTL = 10 * time.Second
	// answerTimeout is how long nodes have to get ready: longer than one that
	// has died still counts among those that live.
	answerTimeout = 15 * time.Second
	// refusalGrace is how long the others are heard once one has refused.
	refusalGrace = time.Second
	// rolloutTimeout is how long is waited for all nodes to serve what is decided.
	rolloutTimeout = 10 * time.Second
	// pollInterval is how often a node that pushes looks for answers.
	pollInterval = 50 * time.Millisecond
)

var (
	//go:embed begin.lua
	beginScript string
	//go:embed answer.lua
	answerScript string
	//go:embed keep.lua
	keepScript string
	//go:embed commit.lua
	commitScript string
	//go:embed undo.lua
	undoScript string
)

var (
	// ErrOvertaken says that a push took so long that it was given up, or that
	// another configuration was published meanwhile. Nothing has changed.
	ErrOvertaken = errors.New("push was overtaken; nothing has changed, try again")
	// ErrUnknown says that Redis went away at the very moment of the decision.
	ErrUnknown = errors.New("push may be done or not; the history tells when redis is back")
)

// A Push is what all nodes are to serve.
type Push struct {
	Bundle config.Bundle
	Config *config.Config // what Bundle is here
	Author string
	From   int64 // not 0: the generation that is gone back to
}

// An Answer is what one node said.
type Answer struct {
	Node string `json:"node"`
	Said string `json:"said"` // ok, or why not; empty while it is silent
}

// agreed is the answer of a node that is ready.
const agreed = "ok"

// A Refused is a push that one or more nodes did not agree to. Nothing has
// changed.
type Refused struct{ Answers []Answer }

// Error names each node that refused or was silent.
func (r *Refused) Error() string {
	text := "push refused; nothing has changed"
	for _, a := range r.Answers {
		switch a.Said {
		case agreed:
		case "":
			text += "; node " + a.Node + ": no answer"
		default:
			text += "; node " + a.Node + ": " + a.Said
		}
	}
	return text
}

// An UnderWay is a push that has to wait for another one.
type UnderWay struct {
	Author, Node string // of the other one
	Since        time.Duration
}

// Error says who pushes.
func (u *UnderWay) Error() string {
	return fmt.Sprintf("%s has been pushing for %v through node %s; wait until that is over", u.Author, u.Since.Round(time.Millisecond), u.Node)
}

// An Outcome is a push that is decided.
type Outcome struct {
	Generation int64    `json:"generation"`
	Hash       string   `json:"hash"`
	Nodes      []Answer `json:"nodes"` // what each node serves by now
}

// Push makes all nodes serve p, or none, by a two-phase commit. First each node that
// lives gets ready
// and says so; one that refuses, or is silent for as long as it lives, ends it.
// Then the number, the definitions and the history are written in one step,
// which is the decision: nodes that follow serve it as soon as they hear of it,
// whatever becomes of this one. A node that dies while it pushes leaves
// everything as it was, or everything decided.
//
// Errors are UnderWay, Refused, ErrOvertaken, ErrUnknown, or wrap that Redis
// could not be asked; only after ErrUnknown something may have changed.
func (n *Node) Push(ctx context.Context, p Push) (Outcome, error) {
	e := Entry{Hash: p.Bundle.Hash(), Author: p.Author, Node: n.id, From: p.From}
	if _, err := n.Restore(ctx); err != nil {
		return Outcome{}, err
	}
	id, packed := rand.Text(), packBundle(p.Bundle)
	seen, at, err := n.begin(ctx, id, e, packed)
	if err != nil {
		return Outcome{}, err
	}
	e.Generation, e.At = seen+1, at
	if err := n.decide(ctx, decision{id, seen, e.write(packed), p.Config}); err != nil {
		n.undo(ctx, id)
		return Outcome{}, err
	}
	return Outcome{e.Generation, e.Hash, n.awaitServing(ctx, e.Generation)}, nil
}

// Try is Push without the decision: it returns what each node says.
func (n *Node) Try(ctx context.Context, p Push) ([]Answer, error) {
	id := rand.Text()
	e := Entry{Hash: p.Bundle.Hash(), Author: p.Author, Node: n.id}
	if _, _, err := n.begin(ctx, id, e, packBundle(p.Bundle)); err != nil {
		return nil, err
	}
	defer n.undo(ctx, id)
	return n.gather(ctx, id)
}

// begin opens a push, if none is under way. It returns the number upon which it
// is built, and when it is.
func (n *Node) begin(ctx context.Context, id string, e Entry, packed []byte) (seen int64, at time.Time, err error) {
	keys := []string{n.prefix + "push", n.prefix + "config"}
	reply, err := n.scripts.begin.Run(ctx, n.rdb, keys, id, e.Hash, packed, e.Author, n.id, pushTTL.Milliseconds(), n.channel()).Slice()
	switch {
	case err != nil:
		return 0, at, fmt.Errorf("begin push: %w", err)
	case len(reply) == 4:
		u := &UnderWay{}
		u.Author, _ = reply[1].(string)
		u.Node, _ = reply[2].(string)
		ms, _ := reply[3].(int64)
		u.Since = time.Duration(ms) * time.Millisecond
		return 0, at, u
	case len(reply) != 3:
		return 0, at, fmt.Errorf("begin push: %w: %v", errReply, reply)
	}
	seen, _ = reply[1].(int64)
	ms, _ := reply[2].(int64)
	return seen, time.UnixMilli(ms).UTC(), nil
}

// A decision is what is written when all nodes have agreed.
type decision struct {
	id    string // of the push
	seen  int64
	entry []byte
	c     *config.Config
}

// decide waits until all nodes have agreed, and commits.
func (n *Node) decide(ctx context.Context, d decision) error {
	for {
		answers, err := n.gather(ctx, d.id)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Said != agreed {
				return &Refused{answers}
			}
		}
		done, err := n.commit(ctx, d)
		if err != nil || done {
			return err
		} // a node has come meanwhile: hear it too
	}
}

// commit is the decision. It reports false when a node has not been heard yet.
func (n *Node) commit(ctx context.Context, d decision) (done bool, err error) {
	keys := []string{n.prefix + "config", n.prefix + "limits", n.prefix + "removed", n.prefix + "push", n.prefix + "history", n.prefix + "nodes"}
	args := append([]any{d.id, d.c.Hash, n.id, d.seen, configTTL.Milliseconds(), memberTimeout.Milliseconds(), d.entry, historyLength, n.channel()}, defining(d.c)...)
	for tries := 3; ; tries-- { // a second time does no harm: it knows the first
		reply, err := n.scripts.commit.Run(context.WithoutCancel(ctx), n.rdb, keys, args...).Slice()
		if err != nil && tries > 1 {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if len(reply) != 2 {
			return false, fmt.Errorf("%w: %w: %v", ErrUnknown, errReply, reply)
		}
		switch reply[0] {
		case int64(1):
			return true, nil
		case int64(0):
			return false, nil
		}
		return false, ErrOvertaken
	}
}

// undo ends a push that is not decided. One that cannot be ended so ends by
// itself after pushTTL.
func (n *Node) undo(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	n.scripts.undo.Run(ctx, n.rdb, []string{n.prefix + "push"}, id, n.channel())
}

// channel is where nodes are told to look.
func (n *Node) channel() string { return n.prefix + "pushes" }
