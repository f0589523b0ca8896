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
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/sends"
)

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
	Decisions *decisions.Query     `json:"decisions,omitempty"`
	Top       *decisions.TopQuery  `json:"top,omitempty"`
	Sends     *sends.Query         `json:"sends,omitempty"`
	Upstreams *proxy.UpstreamQuery `json:"upstreams,omitempty"`
	Config    *ConfigQuery         `json:"config,omitempty"`
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
	Decisions []decisions.Decision     `json:"decisions,omitempty"`
	Top       *decisions.Top           `json:"top,omitempty"`
	Sends     *decisions.Top           `json:"sends,omitempty"`
	Upstreams []proxy.UpstreamStanding `json:"upstreams,omitempty"`
	Config    *SeenConfig              `json:"config,omitempty"`
	Followed  bool                     `json:"followed,omitempty"` // the directives of now hold on the node
	// Cut is true if the reply was truncated.
	Cut bool `json:"cut,omitempty"`
}

// A SeenConfig is a configuration that a node serves.
type SeenConfig struct {
	Hash  string       `json:"hash"`
	Parts config.Parts `json:"parts"`
}

// A Reply is the reply of one node.
type Reply struct {
	Answer // Said is ok, an error, or empty if the node did not reply
	Seen   Seen
}

// smaller returns q for about half as many results; ok is false if q cannot be
// reduced.
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
	case q.Sends != nil && q.Sends.N > 1:
		t := *q.Sends
		t.N /= 2
		return Question{Sends: &t}, true
	}
	return q, false
}

// A questionMessage is the encoding of a question.
type questionMessage struct {
	ID       string   `json:"id"`
	Node     string   `json:"node"` // the node that asks
	Question Question `json:"question"`
}

// A replyMessage is the encoding of a reply.
type replyMessage struct {
	Node string `json:"node"`
	Said string `json:"said"`
	Seen Seen   `json:"seen"`
}

// pack encodes and compresses a reply.
func (r replyMessage) pack() ([]byte, error) {
	var packed bytes.Buffer
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxUnpackedBytes {
		return nil, errReplyTooLong
	}
	w, wrong := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // favour speed: a client waits
	if err := errors.Join(err, wrong, writeAll(w, text), w.Close()); err != nil {
		return nil, err
	}
	if packed.Len() > maxReplyBytes {
		return nil, errReplyTooLong
	}
	return packed.Bytes(), nil
}

// errReplyTooLong reports a reply longer than maxReplyBytes.
var errReplyTooLong = errors.New("reply too long; ask for less")

func writeAll(w io.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

// unpack decodes what pack encoded.
func unpack(packed string) (r replyMessage, err error) {
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

// sortReplies sorts replies by node id.
func sortReplies(all []Reply) []Reply {
	slices.SortFunc(all, func(a, b Reply) int { return strings.Compare(a.Node, b.Node) })
	return all
}
