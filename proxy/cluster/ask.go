package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
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
	silent, err := n.others(ctx)
	if err != nil || len(silent) == 0 {
		return nil, err
	}
	one := questionMessage{rand.Text(), n.id, q}
	text, err := json.Marshal(one)
	if err != nil {
		return nil, fmt.Errorf("ask nodes: %w", err)
	}
	if len(text) > maxQuestionBytes {
		return nil, fmt.Errorf("ask nodes: a question of %d bytes; at most %d", len(text), maxQuestionBytes)
	}
	if err := n.rdb.Publish(ctx, n.questions(), text).Err(); err != nil {
		return nil, fmt.Errorf("ask nodes: %w", err)
	}
	return n.collectReplies(ctx, one.ID, silent), nil
}

// others returns the ids of all other live nodes.
func (n *Node) others(ctx context.Context) (map[string]bool, error) {
	members, err := n.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, m := range members {
		if m.ID != n.id {
			ids[m.ID] = true
		}
	}
	return ids, nil
}

// collectReplies receives replies until all nodes have replied, or ctx is done.
func (n *Node) collectReplies(ctx context.Context, id string, silent map[string]bool) []Reply {
	poll := time.NewTicker(replyPollInterval)
	defer poll.Stop()
	var all []Reply
	for len(silent) > 0 && ctx.Err() == nil {
		packed, err := n.rdb.LPop(ctx, n.replies(id)).Result()
		if err == nil {
			r, err := unpack(packed)
			if err == nil && silent[r.Node] { // ignore nodes that joined after the question
				delete(silent, r.Node)
				all = append(all, Reply{Answer{r.Node, r.Said}, r.Seen})
			}
			continue
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
		}
	}
	for node := range silent {
		all = append(all, Reply{Answer: Answer{Node: node}})
	}
	return sortReplies(all)
}

// ServeQuestions answers the questions of other nodes, until ctx is done.
func (n *Node) ServeQuestions(ctx context.Context, see func(ctx context.Context, q Question) Seen) {
	heard := n.rdb.Subscribe(ctx, n.questions())
	defer heard.Close()
	messages := heard.Channel()
	for {
		select {
		case m, open := <-messages:
			if !open {
				return
			}
			n.reply(ctx, m, see)
		case <-ctx.Done():
			return
		}
	}
}

// reply answers one question of another node. Unreadable questions are ignored.
func (n *Node) reply(ctx context.Context, m *redis.Message, see func(ctx context.Context, q Question) Seen) {
	var one questionMessage
	if len(m.Payload) > maxQuestionBytes || json.Unmarshal([]byte(m.Payload), &one) != nil || one.ID == "" || one.Node == n.id {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	packed, err := n.truncatedReply(ctx, one.Question, see)
	if err != nil {
		return // the other node reports no reply from this node
	}
	pipe := n.rdb.TxPipeline()
	pipe.RPush(ctx, n.replies(one.ID), packed)
	pipe.PExpire(ctx, n.replies(one.ID), replyTTL)
	_, _ = pipe.Exec(ctx) // on failure the other node reports no reply from this node
}

// truncatedReply returns the reply to q, or to a smaller question if the reply
// is too long.
func (n *Node) truncatedReply(ctx context.Context, q Question, see func(ctx context.Context, q Question) Seen) ([]byte, error) {
	for cut := false; ; cut = true {
		r := replyMessage{n.id, agreed, see(ctx, q)}
		r.Seen.Cut = cut
		packed, err := r.pack()
		if !errors.Is(err, errReplyTooLong) {
			return packed, err
		}
		less, ok := q.smaller()
		if !ok {
			return replyMessage{Node: n.id, Said: errReplyTooLong.Error()}.pack()
		}
		q = less
	}
}

// questions returns the channel for questions.
func (n *Node) questions() string { return n.prefix + "questions" }

// replies returns the key of the replies to a question.
func (n *Node) replies(id string) string { return n.prefix + "replies:" + id }
