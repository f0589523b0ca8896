package cluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"

	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// replyPollInterval is how often a node polls for replies to its question.
const replyPollInterval = 10 * time.Millisecond

// Ask sends a question to all other live nodes and returns their replies, ordered by node
// id (scatter-gather). It waits at most two seconds; a node that did not reply is listed
// with an empty reply. An error means that Redis was unreachable and no node was asked.
func (n *Node) Ask(ctx context.Context, q Question) ([]Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("ask nodes: %w", context.Cause(ctx))
	}
	members, err := n.Nodes(ctx)
	silent := map[string]bool{}
	for _, m := range members {
		silent[m.ID] = true
	}
	if delete(silent, n.options.ID); len(silent) == 0 {
		return nil, err
	}
	one := questionMessage{rand.Text(), n.options.ID, q}
	text := encode(one)
	if len(text) > maxQuestionBytes {
		return nil, fmt.Errorf("ask nodes: a question of %d bytes; at most %d", len(text), maxQuestionBytes)
	}
	if err := n.rdb.Publish(ctx, n.questions(), text).Err(); err != nil {
		return nil, fmt.Errorf("ask nodes: %w", err)
	}
	return n.collectReplies(ctx, one.ID, silent), nil
}

// collectReplies receives replies until all nodes have replied, or ctx is done.
func (n *Node) collectReplies(ctx context.Context, id string, silent map[string]bool) []Reply {
	var all []Reply
	poll(ctx, replyPollInterval, func() (done bool) {
		for len(silent) > 0 {
			packed, err := n.rdb.LPop(ctx, n.replies(id)).Result()
			if err != nil {
				return false
			}
			r, err := unpack(packed)
			if err == nil && silent[r.Node] { // ignore nodes that joined after the question
				delete(silent, r.Node)
				all = append(all, r)
			}
		}
		return true
	})
	for node := range silent {
		all = append(all, Reply{NodeAnswer: view.NodeAnswer{Node: node}})
	}
	slices.SortFunc(all, func(a, b Reply) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// poll calls f at each interval until it is done, or ctx is. It reports whether f is.
func poll(ctx context.Context, interval time.Duration, f func() (done bool)) bool {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// ServeQuestions answers the questions of other nodes, until ctx is done.
func (n *Node) ServeQuestions(ctx context.Context, see func(ctx context.Context, q Question) Seen) {
	heard := n.rdb.Subscribe(ctx, n.questions())
	defer context.AfterFunc(ctx, func() { heard.Close() })()
	for m := range heard.Channel() { // until it is closed
		n.reply(ctx, m, see)
	}
}

// reply answers one question of another node. Unreadable questions are ignored.
func (n *Node) reply(ctx context.Context, m *redis.Message, see func(ctx context.Context, q Question) Seen) {
	var one questionMessage
	if len(m.Payload) > maxQuestionBytes || json.Unmarshal([]byte(m.Payload), &one) != nil || one.ID == "" || one.Node == n.options.ID {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	packed, err := n.truncatedReply(ctx, one.Question, see)
	if err != nil {
		return // the other node reports no reply from this node
	}
	// In one step, so that no reply stays forever. On failure the other node reports no reply from this node.
	_ = n.rdb.Eval(ctx, "redis.call('RPUSH', KEYS[1], ARGV[1]) redis.call('PEXPIRE', KEYS[1], ARGV[2])", []string{n.replies(one.ID)}, packed, replyTTL.Milliseconds()).Err()
}

// truncatedReply returns the reply to q, or to a smaller question if the reply
// is too long.
func (n *Node) truncatedReply(ctx context.Context, q Question, see func(ctx context.Context, q Question) Seen) ([]byte, error) {
	for cut := false; ; cut = true {
		r := Reply{view.NodeAnswer{Node: n.options.ID, Said: agreed}, see(ctx, q)}
		r.Seen.Cut = cut
		packed, err := r.pack()
		if !errors.Is(err, errReplyTooLong) {
			return packed, err
		}
		less, ok := q.smaller()
		if !ok {
			return Reply{NodeAnswer: view.NodeAnswer{Node: n.options.ID, Said: errReplyTooLong.Error()}}.pack()
		}
		q = less
	}
}

// questions returns the channel for questions.
func (n *Node) questions() string { return n.prefix + "questions" }

// replies returns the key of the replies to a question.
func (n *Node) replies(id string) string { return n.prefix + "replies:" + id }

const (
	// askTimeout is how long the other nodes have to reply.
	askTimeout = 2 * time.Second
	// replyTTL is how long Redis keeps a reply that is not fetched.
	replyTTL = 5 * time.Second
	// maxQuestionBytes is the maximum length of a question, maxReplyBytes a reply as it
	// travels, and maxUnpackedBytes a reply as it is read, in bytes.
	maxQuestionBytes = 8 << 10
	maxReplyBytes    = 1 << 20
	maxUnpackedBytes = 32 << 20
	// maxConcurrentQuestions is the maximum number of questions in progress; more
	// wait.
	maxConcurrentQuestions = 4
)

// A Question is sent by a node to all others. Exactly one field is set.
type Question struct {
	Decisions *view.DecisionQuery `json:"decisions,omitempty"`
	Top       *view.TopQuery      `json:"top,omitempty"`
	Sends     *sends.Query        `json:"sends,omitempty"`
	Upstreams *struct{}           `json:"upstreams,omitempty"`
	Config    *ConfigQuery        `json:"config,omitempty"`
	// Directives asks the nodes to read the directives now.
	Directives bool `json:"directives,omitempty"`
}

// A ConfigQuery asks the named nodes for the parts of their configurations, hashed with one secret.
type ConfigQuery struct {
	Once  []byte   `json:"once"`
	Nodes []string `json:"nodes"`
}

// Seen is the content of a reply. Keys in it are masked: raw keys are not sent to
// other nodes.
type Seen struct {
	Decisions []view.Decided          `json:"decisions,omitempty"`
	Top       *view.Top               `json:"top,omitempty"`
	Sends     *view.Top               `json:"sends,omitempty"`
	Upstreams []view.UpstreamStanding `json:"upstreams,omitempty"`
	Config    *SeenConfig             `json:"config,omitempty"`
	Followed  bool                    `json:"followed,omitempty"` // the directives of now hold on the node
	// Cut is true if the reply was truncated.
	Cut bool `json:"cut,omitempty"`
}

// A SeenConfig is a configuration that a node serves.
type SeenConfig struct {
	Hash  string       `json:"hash"`
	Parts config.Parts `json:"parts"`
}

// A Reply is the reply of one node. Its JSON is what is sent.
type Reply struct {
	view.NodeAnswer      // Said is ok, an error, or empty if the node did not reply
	Seen            Seen `json:"seen"`
}

// smaller returns q for about half as many results; ok is false if q cannot be
// reduced.
func (q Question) smaller() (less Question, ok bool) {
	switch {
	case q.Decisions != nil && q.Decisions.N > 1:
		less.Decisions = new(*q.Decisions)
		less.Decisions.N /= 2
	case q.Top != nil && q.Top.N > 1:
		less.Top = new(*q.Top)
		less.Top.N /= 2
	case q.Sends != nil && q.Sends.N > 1:
		less.Sends = new(*q.Sends)
		less.Sends.N /= 2
	default:
		return q, false
	}
	return less, true
}

// A questionMessage is the encoding of a question.
type questionMessage struct {
	ID       string   `json:"id"`
	Node     string   `json:"node"` // the node that asks
	Question Question `json:"question"`
}

// pack encodes and compresses a reply.
func (r Reply) pack() ([]byte, error) {
	var packed bytes.Buffer
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxUnpackedBytes {
		return nil, errReplyTooLong
	}
	w, wrong := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // favour speed: a client waits
	_, unwritten := w.Write(text)
	if err := errors.Join(err, wrong, unwritten, w.Close()); err != nil {
		return nil, err
	}
	if packed.Len() > maxReplyBytes {
		return nil, errReplyTooLong
	}
	return packed.Bytes(), nil
}

// errReplyTooLong reports a reply longer than maxReplyBytes.
var errReplyTooLong = errors.New("reply too long; ask for less")

// unpack decodes what pack encoded.
func unpack(packed string) (r Reply, err error) {
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return r, fmt.Errorf("%w: %w", errReply, err)
	}
	if err := json.NewDecoder(io.LimitReader(z, maxUnpackedBytes)).Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %w", errReply, err)
	}
	if r.Node == "" {
		return r, fmt.Errorf("%w: a reply without a node", errReply)
	}
	return r, nil
}

// collectAnswers waits until every live node has answered or the timeout has passed;
// after a refusal it waits only a little longer for the others. It keeps the push
// alive.
func (n *Node) collectAnswers(ctx context.Context, id string) (answers []view.NodeAnswer, err error) {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	defer n.answered.Store(new([]view.NodeAnswer))
	var enough time.Time // set after a refusal
	done := poll(within, pollInterval, func() (done bool) {
		if answers, err = n.answers(ctx, id); err != nil {
			return true
		}
		n.answered.Store(new(answers))
		silent, refused := false, false
		for _, a := range answers {
			silent = silent || a.Said == ""
			refused = refused || a.Said != "" && a.Said != agreed
		}
		if refused && enough.IsZero() {
			enough = time.Now().Add(refusalGrace)
		}
		return !silent || !enough.IsZero() && !time.Now().Before(enough)
	})
	if !done && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// answers returns the answers of all live nodes so far, ordered by node id.
func (n *Node) answers(ctx context.Context, id string) ([]view.NodeAnswer, error) {
	reply, err := n.run(ctx, "keep", []string{"push", "nodes", "members"}, id, pushTTL.Milliseconds(), memberTimeout.Milliseconds()).Slice()
	if errors.Is(err, redis.Nil) {
		return nil, ErrOvertaken
	}
	if err != nil {
		return nil, fmt.Errorf("hear nodes: %w", err)
	}
	var all []view.NodeAnswer
	for _, row := range reply {
		texts, ok := row.([]any)
		if !ok || len(texts) != 3 {
			return nil, fmt.Errorf("hear nodes: %w: %v", errReply, row)
		}
		var a view.NodeAnswer
		a.Node, _ = texts[0].(string)
		a.Said, _ = texts[1].(string)
		said, _ := texts[2].(string)
		var m view.Member
		if json.Unmarshal([]byte(said), &m) == nil && m.Source == "file" {
			a.Said = "reads its own file; write reload: {source: redis} there and restart it"
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b view.NodeAnswer) int { return strings.Compare(a.Node, b.Node) })
	return all, nil
}

// awaitServing waits until all nodes serve that generation, and returns what each
// node serves.
func (n *Node) awaitServing(ctx context.Context, number int64) []view.NodeAnswer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rolloutTimeout)
	defer cancel()
	defer n.answered.Store(new([]view.NodeAnswer))
	var answers []view.NodeAnswer
	poll(ctx, pollInterval, func() (done bool) {
		members, err := n.Nodes(ctx)
		if err != nil {
			return false
		}
		answers, done = nil, true
		for _, m := range members {
			a := view.NodeAnswer{Node: m.ID, Said: agreed}
			if m.Generation != number {
				a.Said, done = fmt.Sprintf("serves generation %d still", m.Generation), false
			}
			answers = append(answers, a)
		}
		n.answered.Store(new(answers))
		return done
	})
	return answers
}
