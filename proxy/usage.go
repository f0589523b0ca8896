package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/usage"
)

// reserves reports whether a limit of r reserves permits, for which it may need the length of a body.
func (r *route) reserves() bool {
	return slices.ContainsFunc(r.Active, func(l *limit.Limit) bool { return l.Cost.IsReserved() })
}

// reserved returns the number of permits that the request takes of l until its response says what it has used.
func (g *generation) reserved(x *exchange, l *limit.Limit) (int64, error) {
	c := l.Cost
	bound, length, err := g.asked(x, l)
	switch {
	case err != nil:
		return 0, err
	case bound < 0 && c.Otherwise == 0 && len(c.From) > 0 && c.Bytes == 0:
		return 0, fmt.Errorf("%s: %w", c.From[0].Name, key.ErrMissing)
	}
	x.extracted.asked = fmt.Appendf(x.extracted.asked, " %s%s=%d/%d", askedPrefix, l.Name, bound, length)
	if bound < 0 {
		bound = c.Otherwise
	}
	most := usage.Output.Of(bound)
	if c.Bytes > 0 {
		most.Counts[usage.Input] = (length + c.Bytes - 1) / c.Bytes
	}
	weights, limit := x.tokenWeights(l)
	return max(1, min(most.Cost(weights), limit)), nil
}

// asked returns the most tokens that the request wants to be written, -1 if it does not say, and the length of its body. Of
// several numbers nobody knows which one the upstream takes, so the greatest counts.
func (g *generation) asked(x *exchange, l *limit.Limit) (bound, length int64, err error) {
	if text, _, found := x.extracted.logged.line.find(askedPrefix + l.Name); found {
		if _, err = fmt.Sscanf(text, "%d/%d", &bound, &length); len(l.Cost.From) == 0 {
			bound = -1 // this configuration does not ask
		}
		return bound, length, err
	}
	bound, length = -1, x.in.length
	if length < 0 && l.Cost.Bytes > 0 || length != 0 && x.route.Usage.Ensures {
		body, err := x.Body()
		if err != nil {
			return 0, 0, err
		}
		length = int64(len(body.Bytes))
	}
	for _, s := range l.Cost.From {
		k, err := g.key(x, s)
		if err != nil {
			return 0, 0, err
		}
		if k.Skip || k.Text == "" || k.Text == "null" { // as some clients write what they do not set
			continue
		}
		n, err := strconv.ParseInt(k.Text, 10, 32)
		if err != nil || n < 0 {
			return 0, 0, fmt.Errorf("%s: %w: write a whole number", s.Name, limit.ErrCost)
		}
		bound = max(bound, n)
	}
	return bound, length, nil
}

// ensureUsage makes the body that is forwarded in place of one that was read into a buffer, if the route wants streams to say
// their usage. It returns an error for one that a server might answer by a stream that does not.
func (x *exchange) ensureUsage(in *body.Buffer, read []byte) (err error) {
	switch from := x.route.Usage; {
	case from == nil || !from.Ensures || len(read) == 0:
	case !in.Reserve(3*int64(len(read)) + usage.MaxEnsured):
		err = body.ErrFull
	default:
		if x.extracted.body.ensured, err = usage.Ensure(read); err != nil {
			err = fmt.Errorf("%w: the body is not JSON as all servers read it, or its stream_options are no object", key.ErrAmbiguous)
		}
	}
	return err
}

// setBody sets the body that Body has read, if it was called, or the one in its place.
func (x *exchange) setBody(t *upstream.Request) {
	if c := x.extracted.body; c != nil {
		if t.BufferedBody = c.bytes; c.ensured != nil {
			t.BufferedBody, t.Length = c.ensured, int64(len(c.ensured))
		}
	}
}

// A responseUsage is what is known of what a response says about its request.
type responseUsage struct {
	reader *usage.Reader // of the body; nil if it is not read
	limit.Used
}

// beginUsage prepares for what the response says that the request has used.
func (x *exchange) beginUsage(status int, h *http1.Fields) {
	u, from := &responseUsage{Used: limit.Used{Weights: x.tokenWeights}}, x.route.Usage
	x.usage = u
	encoding, _ := h.Value(http1.ContentEncoding)
	switch {
	case status >= 400:
		u.Unsettled = "error"
	case from.Bytes:
	case from.Header != "":
		n, valid := usage.Number(strings.Join(h.Values(from.Header), ",")) // several are none
		u.Report, u.Known = usage.Total.Of(n), valid
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		u.Unsettled = "encoded"
	default:
		kind, _ := h.Value(http1.ContentType)
		u.reader = usage.NewReader(from.Format, kind)
		x.forwarded.request.OnBody = u.reader.Write
	}
}

// used returns what the response has said; nil if none was asked.
func (x *exchange) used() *limit.Used {
	u, from := x.usage, x.route.Usage
	if u == nil {
		return nil
	}
	if from.Bytes && u.Unsettled == "" && x.outcome.known {
		u.Report = usage.Total.Of(x.response.bytes)
	}
	if u.reader != nil {
		u.Report = u.reader.Report()
	}
	if !u.Known && u.Unsettled == "" {
		u.Unsettled = "absent"
	}
	if u.IsCut = x.outcome.known && x.outcome.result.Kind != upstream.OK; !u.IsCut || u.Unsettled == "error" {
		return &u.Used
	}
	length := x.in.length
	if x.extracted.body != nil {
		length = int64(len(x.extracted.body.bytes))
	}
	if u.Unsettled = "cut"; from.EstimatesCut && length >= 0 {
		u.Estimate = usage.Output.Of(max(u.Counts[usage.Output], x.response.bytes/4))
		u.Estimate.Counts[usage.Input] = max(u.Counts[usage.Input], length/4)
	}
	return &u.Used
}

// Entries of the field keys, by which a Replay reserves and settles: what a request asks of a limit, the most tokens that
// are written and the bytes of its body; and what its response has said.
const (
	askedPrefix = "asked:"
	usedEntry   = "used"
)

// appendUsage appends these entries.
func (x *exchange) appendUsage(b []byte) []byte {
	b = append(b, x.extracted.asked...)
	if u := x.usage; u != nil && u.Known && !u.IsCut {
		b = fmt.Appendf(b, " %s=%d/%d/%d/%d", usedEntry, u.Counts[usage.Input], u.Counts[usage.Cached], u.Counts[usage.Output], u.Counts[usage.Total])
	}
	return bytes.TrimPrefix(b, []byte(" "))
}

// replayUsage sets what the response to x has said, by a line of the log.
func (x *exchange) replayUsage(line loggedKeys) {
	if x.route.Usage == nil {
		return
	}
	text, _, _ := line.find(usedEntry)
	u := &responseUsage{Used: limit.Used{Weights: x.tokenWeights}}
	if _, err := fmt.Sscanf(text, "%d/%d/%d/%d", &u.Counts[usage.Input], &u.Counts[usage.Cached], &u.Counts[usage.Output], &u.Counts[usage.Total]); err == nil {
		u.Known, x.usage = true, u
	}
}

// knowsCost reports whether a line has what a limit reserves for the request, or what its cost is read from.
func (l *LoggedRequest) knowsCost(of *limit.Limit, x *exchange) bool {
	_, _, found := x.extracted.logged.line.find(askedPrefix + of.Name)
	return found || (of.Cost.Bytes == 0 || l.HasBody) && !slices.ContainsFunc(of.Cost.From, func(s *key.Spec) bool { return !l.knows(s.From, x) })
}
