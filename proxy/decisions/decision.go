package decisions

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxDecisions is the maximum number of results of one query.
const maxDecisions = 1000

// A Naming is how keys and paths are shown.
type Naming struct {
	Names
	Display key.Display
}

// Names has the names of keys for operators.
type Names interface {
	KeyHash(k limiter.Key) string // the hash of a key in the log
	KeyID(k limiter.Key) string   // see the field value of a key query
	HidePersonal(path string) string
}

// Find returns recent decisions, newest first: of the last 6144 requests that were refused, or would have been in
// shadow mode, as far as there were no more than 1000 in a second; of up to 1536 others, earlier or more in a second,
// of which each key and client has a share of 24 (in a flood, one each millisecond), so that a flood by one does not
// remove those of all others; and of the last 4096 others, or a sample of them. It delays requests only for the time of
// copying a part of the ring.
func (r *ring) Find(q view.DecisionQuery, v Naming) []view.Decided {
	q.N = min(cmp.Or(max(q.N, 0), 100), maxDecisions)
	found := r.matching(&q, v)
	slices.SortFunc(found, func(a, b record) int { return cmp.Compare(b.began, a.began) })
	found = slices.CompactFunc(found, func(a, b record) bool { return a.began == b.began && a.id == b.id && a.idHash == b.idHash })
	found = found[:min(len(found), q.N)]
	all := make([]view.Decided, len(found))
	for i := range found {
		all[i] = found[i].decision(v)
	}
	return all
}

// matching returns copies of the records that match.
func (r *ring) matching(q *view.DecisionQuery, v Naming) (found []record) {
	hash := maphash.String(r.seed, q.RequestID)
	for rec := range r.all {
		if rec.began != 0 && (q.RequestID == "" || rec.hasID(q.RequestID, hash)) && rec.matches(q, v) {
			found = append(found, *rec)
		}
	}
	return found
}

// hasID reports whether a record has this request id, whose hash is given.
func (r *record) hasID(id string, hash uint64) bool {
	if len(id) > maxID {
		return r.idHash == hash
	}
	return r.idHash == 0 && string(r.id[:r.idLen]) == id
}

// matches reports whether a record matches q, apart from the request id.
func (r *record) matches(q *view.DecisionQuery, v Naming) bool {
	switch {
	case q.Outcome != "" && r.Outcome.String() != q.Outcome,
		q.Route != "" && r.routeName() != q.Route,
		!q.Before.IsZero() && r.began >= q.Before.UnixNano(),
		q.Limit != "" && !r.has(q.Limit, q.Outcome):
		return false
	}
	return q.Key == "" || slices.ContainsFunc(r.keys[:r.numKeys], func(k labelledKey) bool {
		return v.KeyHash(k.key) == q.Key || v.KeyID(k.key) == q.Key
	})
}

// routeName returns the name of the route; none, as in metrics, for a request that no route matched.
func (r *record) routeName() string {
	if r.Route == nil {
		return "none"
	}
	return r.Route.Name
}

// has reports whether a limit was evaluated and, if outcome is that of a limit, had that result.
func (r *record) has(limit, outcome string) bool {
	return slices.ContainsFunc(r.claims[:r.numClaims], func(c claim) bool {
		if r.Route.Windows[c.window].Limit != limit {
			return false
		}
		return outcome != nameRefused && outcome != nameShadowRefused || c.result() == outcome
	})
}

// result returns the name of the result of a rate.
func (c claim) result() string {
	switch {
	case c.flags&NotAsked != 0:
		return nameNotAsked
	case c.flags&Allowed != 0:
		return nameAllowed
	case c.flags&Shadow != 0:
		return nameShadowRefused
	}
	return nameRefused
}

// decision returns a record as operators see it.
func (r *record) decision(v Naming) view.Decided {
	d := view.Decided{
		RequestID: string(r.id[:r.idLen]), At: time.Unix(0, r.began).UTC(), Method: string(r.method[:r.methodLen]),
		Path: string(r.path[:r.pathLen]), Status: int(r.status), Outcome: r.Outcome.String(), TookMS: float64(r.Took.Microseconds()) / 1000,
		Limits: make([]view.DecisionLimit, 0, r.numClaims), More: int(r.moreClaims), List: r.List, NewKeys: r.NewKeys,
		Fallback: r.Fallback, Upstream: r.Upstream, Listener: r.Listener, Error: r.err, Challenge: r.Challenge.String(),
		Flags: r.Flags,
	}
	if r.Personal {
		d.Path = v.HidePersonal(d.Path)
	}
	if r.Route == nil {
		summarize(&d)
		return d
	}
	d.Route = r.Route.Name
	for _, c := range r.claims[:r.numClaims] {
		w := r.Route.Windows[c.window]
		l := w.DecisionLimit
		l.Result, l.Banned, l.WaitMS = c.result(), c.flags&Banned != 0, float64(c.wait)
		if c.flags&(Shadow|NotAsked) == 0 {
			left := int64(c.remaining)
			l.Left = &left
			if w.AmountText != nil {
				l.Amount = w.AmountText(left)
			}
		}
		if c.key < r.numKeys {
			k := &r.keys[c.key]
			l.Masked, l.Hash, l.ID = k.label.Masked(v.Display, w.Shapes), v.KeyHash(k.key), v.KeyID(k.key)
		}
		d.Limits = append(d.Limits, l)
	}
	summarize(&d)
	return d
}

// labelBytes is the size of the texts of a key that are kept to be shown. A phone number, an
// address or both fit.
const labelBytes = 39

// A Label holds the texts of a key in a fixed size, so that storing one costs only a copy. Of a
// text that is too long, the beginning and the end are kept; nothing else of it is ever shown. It
// is shown as Display says, masked if the key is sensitive. After the text of a range of phone numbers
// there may be its country, which Masked leaves out.
type Label struct {
	size uint8
	text [labelBytes]byte // the texts, separated by NUL
}

// Reset makes l empty.
func (l *Label) Reset() { l.size = 0 }

// Texts returns the texts of the key, as far as they fitted.
func (l *Label) Texts() []string { return strings.Split(string(l.text[:l.size]), "\x00") }

// minPartBytes is the minimum size of a text beside the other texts of its key: enough for a phone
// number.
const minPartBytes = 16

// AddPart adds a text; rest is the number of texts that follow. A text that is too long is cut in the
// middle, where it gets a star.
func (l *Label) AddPart(text string, rest int) {
	if l.size > 0 && l.size < labelBytes {
		l.text[l.size] = 0
		l.size++
	}
	left := labelBytes - int(l.size)
	space := max(left-rest*minPartBytes, left/(rest+1)-1)
	switch {
	case len(text) <= space:
		l.add(text)
	case space >= 3:
		l.add(text[:space/2])
		l.add("*")
		l.add(text[len(text)-(space-space/2-1):])
	}
}

func (l *Label) add(text string) { l.size += uint8(copy(l.text[l.size:], text)) }

// Masked returns the masked texts of the key.
func (l *Label) Masked(d key.Display, shapes []key.Shape) string {
	texts := l.Texts()
	for i, t := range texts {
		if !utf8.ValidString(t) { // cut within a character
			texts[i] = strings.ToValidUTF8(t, "")
		}
	}
	return d.Texts(shapes, texts)
}

// summarize puts the limits that decided first, and sets the sentence about d: "refused by sms-send.range
// (banned), passes 08:04:12 UTC (38 min)".
func summarize(d *view.Decided) {
	rank := func(l view.DecisionLimit) int {
		return slices.Index([]string{nameRefused, nameShadowRefused, nameAllowed, nameNotAsked}, l.Result)
	}
	slices.SortStableFunc(d.Limits, func(a, b view.DecisionLimit) int {
		if a.Result == nameRefused && b.Result == nameRefused && a.WaitMS != b.WaitMS {
			return cmp.Compare(b.WaitMS, a.WaitMS) // by that of which the refusal lasts longest
		}
		return cmp.Compare(rank(a), rank(b))
	})
	d.Summary = verdict(d)
	if d.Fallback != "" {
		d.Summary += "; without redis (" + d.Fallback + ")"
	}
	switch d.Challenge {
	case "":
	case ChallengeIssued.String():
		d.Summary += "; a challenge was issued"
	case ChallengePassed.String():
		d.Summary += "; it passed by step_up"
	default:
		d.Summary += "; a challenge was issued, because its token was " + d.Challenge
	}
	if d.BanBegan {
		d.Summary += "; this refusal began a ban"
	}
}

// verdict returns what decided.
func verdict(d *view.Decided) string {
	switch by := withResult(d, nameRefused); {
	case d.Outcome == nameRefused && len(by) > 0:
		return "refused by " + namesOf(d, by) + passes(d, by[0])
	case d.Outcome == nameRefused:
		return "refused: too many new keys"
	case d.Outcome == nameRejected && d.List != "":
		_, why, _ := strings.Cut(d.Error, "denied by a list") // of a ban
		return "rejected by the list " + d.List + why
	case d.Outcome == nameRejected && d.Fallback != "":
		return "not decided"
	case d.Outcome == nameRejected:
		return "rejected: " + cmp.Or(d.Error, fmt.Sprint("status ", d.Status))
	case d.Outcome == nameShadowRefused && len(withResult(d, nameShadowRefused)) > 0:
		return "allowed; in shadow mode it would have been refused by " + namesOf(d, withResult(d, nameShadowRefused))
	case d.Outcome == nameShadowRefused:
		return "allowed; in shadow mode it would have been refused"
	case d.List != "":
		return "allowed by the list " + d.List
	case d.Repeated:
		return "allowed: it repeats a counted request"
	case d.Exempt || len(d.Limits) == 0:
		return "allowed: no limit applied"
	}
	return "allowed by all its limits"
}

// withResult returns the limits with that result.
func withResult(d *view.Decided, result string) []view.DecisionLimit {
	return slices.DeleteFunc(slices.Clone(d.Limits), func(l view.DecisionLimit) bool { return l.Result != result })
}

// namesOf returns the limits with their rates: "sms-send.range (banned) and sms-send.phone 1/1m".
func namesOf(d *view.Decided, limits []view.DecisionLimit) string {
	var names []string
	for _, l := range limits {
		name := l.Limit + " " + l.Permits
		if l.Banned {
			name = l.Limit + " (banned)"
		}
		if !l.Common {
			name = d.Route + "." + name
		}
		names = view.AddNew(names, name)
	}
	return strings.Join(names, " and ")
}

// passes returns when a request that l refused would pass.
func passes(d *view.Decided, l view.DecisionLimit) string {
	wait := time.Duration(l.WaitMS * float64(time.Millisecond))
	if wait <= 0 {
		return ""
	}
	return ", passes " + view.Moment(d.At, d.At.Add(wait))
}
