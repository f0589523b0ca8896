package cluster

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

const (
	// askTimeout is how long the others have to say what they have seen.
	askTimeout = 2 * time.Second
	// replyTTL is how long Redis keeps a reply for which nobody comes.
	replyTTL = 5 * time.Second
	// maxQuestionBytes is how long a question may be, maxReplyBytes a reply as it travels, and
	// maxUnpackedBytes a reply as it is read, in bytes.
	maxQuestionBytes = 8 << 10
	maxReplyBytes    = 1 << 20
	maxUnpackedBytes = 32 << 20
	// maxConcurrentQuestions is how many questions a node asks at a time; more wait.
	maxConcurrentQuestions = 4
)

// A Question is what a node asks of all others. One of its fields is set.
type Question struct {
	Decisions *proxy.DecisionQuery `json:"decisions,omitempty"`
	Top       *proxy.TopQuery      `json:"top,omitempty"`
	Upstreams *proxy.UpstreamQuery `json:"upstreams,omitempty"`
}

// Seen is what a node knows of what it was asked. Keys in it are masked: what a client
// has sent as one does not travel.
type Seen struct {
	Decisions []proxy.Decision         `json:"decisions,omitempty"`
	Top       *proxy.Top               `json:"top,omitempty"`
	Upstreams []proxy.UpstreamStanding `json:"upstreams,omitempty"`
	// Cut says that more was asked for than one reply may hold.
	Cut bool `json:"cut,omitempty"`
}

// A Reply is what one node answers.
type Reply struct {
	Answer // Said is ok, why not, or empty of a node that was silent
	Seen   Seen
}

// smaller is q for about half as much; ok is false when there is nothing less to ask.
func (q Question) smaller() (less Question, ok bool) {
	switch {
	case q.Decisions != nil && q.Decisions.N > 1:
		d := *q.Decisions
		d.N /= 2
		return Question{Decisions: &d}, true
	case q.Top != nil && q.Top.N > 1:
		t := *q.Top
		t.N /= 2
		return Question{Top: &t}, true
	}
	return q, false
}

// A questionMessage is a question on its way.
type questionMessage struct {
	ID       string   `json:"id"`
	Node     string   `json:"node"` // that asks
	Question Question `json:"question"`
}

// A replyMessage is a reply on its way.
type replyMessage struct {
	Node string `json:"node"`
	Said string `json:"said"`
	Seen Seen   `json:"seen"`
}

// pack writes a reply that is no longer than it may be.
func (r replyMessage) pack() ([]byte, error) {
	var packed bytes.Buffer
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxUnpackedBytes {
		return nil, errReplyTooLong
	}
	w, wrong := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // somebody waits
	if err := errors.Join(err, wrong, writeAll(w, text), w.Close()); err != nil {
		return nil, err
	}
	if packed.Len() > maxReplyBytes {
		return nil, errReplyTooLong
	}
	return packed.Bytes(), nil
}

// errReplyTooLong says that a reply is longer than it may be.
var errReplyTooLong = errors.New("more than one reply may hold; ask for less")

func writeAll(w io.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

// unpack reads what pack writes.
func unpack(packed string) (r replyMessage, err error) {
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return r, fmt.Errorf("%w: %w", errReply, err)
	}
	if err := json.NewDecoder(io.LimitReader(z, maxUnpackedBytes)).Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %w", errReply, err)
	}
	if r.Node == "" {
		return r, fmt.Errorf("%w: a reply of no node", errReply)
	}
	return r, nil
}

// sortReplies orders replies by their nodes.
func sortReplies(all []Reply) []Reply {
	slices.SortFunc(all, func(a, b Reply) int { return strings.Compare(a.Node, b.Node) })
	return all
}
