package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// collectAnswers waits until every live node has answered or the timeout has passed;
// after a refusal it waits only a little longer for the others. It keeps the push
// alive.
func (n *Node) collectAnswers(ctx context.Context, id string) ([]Answer, error) {
	deadline := time.NewTimer(answerTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var enough <-chan time.Time // set after a refusal
	for {
		answers, err := n.answers(ctx, id)
		if err != nil {
			return nil, err
		}
		silent, refused := false, false
		for _, a := range answers {
			silent = silent || a.Said == ""
			refused = refused || a.Said != "" && a.Said != agreed
		}
		if !silent {
			return answers, nil
		}
		if refused && enough == nil {
			enough = time.After(refusalGrace)
		}
		select {
		case <-poll.C:
		case <-enough:
			return answers, nil
		case <-deadline.C:
			return answers, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// answers returns the answers of all live nodes so far, ordered by node id.
func (n *Node) answers(ctx context.Context, id string) ([]Answer, error) {
	keys := []string{n.prefix + "push", n.prefix + "nodes", n.prefix + "members"}
	reply, err := n.scripts.keep.Run(ctx, n.rdb, keys, id, pushTTL.Milliseconds(), memberTimeout.Milliseconds()).Slice()
	if errors.Is(err, redis.Nil) {
		return nil, ErrOvertaken
	}
	if err != nil {
		return nil, fmt.Errorf("hear nodes: %w", err)
	}
	var all []Answer
	for _, row := range reply {
		texts, ok := row.([]any)
		if !ok || len(texts) != 3 {
			return nil, fmt.Errorf("hear nodes: %w: %v", errReply, row)
		}
		var a Answer
		a.Node, _ = texts[0].(string)
		a.Said, _ = texts[1].(string)
		said, _ := texts[2].(string)
		var m Member
		if json.Unmarshal([]byte(said), &m) == nil && m.Source == "file" {
			a.Said = "reads its own file; write reload: {source: redis} there and restart it"
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Answer) int { return strings.Compare(a.Node, b.Node) })
	return all, nil
}

// awaitServing waits until all nodes serve that generation, and returns what each
// node serves.
func (n *Node) awaitServing(ctx context.Context, number int64) []Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rolloutTimeout)
	defer cancel()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var answers []Answer
	for {
		if members, err := n.Nodes(ctx); err == nil {
			answers = answers[:0]
			all := true
			for _, m := range members {
				a := Answer{m.ID, agreed}
				if m.Generation != number {
					a.Said, all = fmt.Sprintf("serves generation %d still", m.Generation), false
				}
				answers = append(answers, a)
			}
			if all {
				return answers
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return answers
		}
	}
}
