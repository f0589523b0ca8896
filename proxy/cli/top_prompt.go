package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy"
)

// maxInput is the maximum length of an answer.
const maxInput = 200

// A topQuestion is the next question of a prompt.
type topQuestion int

// The questions, in their order.
const (
	askPlan   topQuestion = iota // the plan that is assigned
	askFor                       // the duration of a ban or an assignment
	askReason                    // the reason, for the audit trail
	askSure                      // confirmation
)

// A topPrompt asks the operator for the details of a change. It is immutable: each
// answer returns a new one.
type topPrompt struct {
	action proxy.KeyAction
	key    keyOfRow
	asks   topQuestion
	typed  string   // so far
	given  bool     // typed is a proposal, which the first letter replaces
	plans  []string // that can be assigned
	plan   string
	span   proxy.Span
	reason string
	fault  string // error in the last answer
}

func newTopPrompt(action proxy.KeyAction, k keyOfRow) *topPrompt {
	p := &topPrompt{action: action, key: k, asks: askReason}
	if action == proxy.KeyBan {
		p.asks, p.typed, p.given = askFor, "1h", true
	}
	return p
}

// newPlanPrompt returns a prompt for the assignment of one of plans.
func newPlanPrompt(k keyOfRow, plans []string) *topPrompt {
	return &topPrompt{action: proxy.KeyAssign, key: k, asks: askPlan, plans: plans}
}

// text returns the line that is shown.
func (p topPrompt) text() string {
	fault := ""
	if p.fault != "" {
		fault = "  (" + p.fault + ")"
	}
	switch p.asks {
	case askPlan:
		return fmt.Sprintf("Plan of %s (%s; empty ends an assignment)? %s_%s", p.key.masked, printable(strings.Join(p.plans, ", ")), p.typed, fault)
	case askFor:
		return fmt.Sprintf("%s %s for how long? %s_%s", p.doing(), p.key.masked, p.typed, fault)
	case askReason:
		return fmt.Sprintf("%s %s, why? %s_%s", p.doing(), p.key.masked, p.typed, fault)
	}
	return fmt.Sprintf("%s %s under all limits that count by %s, because of %q? y or n%s", p.doing(), p.key.masked, p.key.name, p.reason, fault)
}

// doing describes the pending action.
func (p topPrompt) doing() string {
	switch p.action {
	case proxy.KeyBan:
		if p.asks == askSure {
			return "Ban for " + p.span.String() + ":"
		}
		return "Ban"
	case proxy.KeyUnban:
		return "End the bans of"
	case proxy.KeyAssign:
		if p.asks == askSure {
			return "Plan " + p.plan + " for " + p.span.String() + ":"
		}
		return "Plan " + p.plan + " for"
	case proxy.KeyUnassign:
		return "End the assigned plan of"
	}
	return "Reset"
}

// answer handles a key press while a prompt is open.
func (m topModel) answer(p keyPress) (topModel, topEffect) {
	next := *m.prompt
	next.fault = ""
	m.prompt = &next
	switch {
	case p.name == "ctrl-c":
		return m, topEffect{end: true}
	case p.name == "esc":
		m.prompt, m.note = nil, "nothing was changed"
	case next.asks == askSure:
		return m.confirm(p)
	case p.name == "enter":
		next.entered()
	case p.name == "backspace":
		_, n := utf8.DecodeLastRuneInString(next.typed)
		next.typed, next.given = next.typed[:len(next.typed)-n], false
	case p.letter != 0 && unicode.IsPrint(p.letter) && next.given:
		next.typed, next.given = string(p.letter), false
	case p.letter != 0 && unicode.IsPrint(p.letter) && utf8.RuneCountInString(next.typed) < maxInput:
		next.typed += string(p.letter)
	}
	return m, topEffect{}
}

// entered accepts the typed answer.
func (p *topPrompt) entered() {
	text := strings.TrimSpace(p.typed)
	switch p.asks {
	case askPlan:
		if text == "" {
			p.action, p.asks = proxy.KeyUnassign, askReason
			return
		}
		if !slices.Contains(p.plans, text) {
			p.fault = "no such plan"
			return
		}
		p.plan, p.asks, p.typed, p.given = text, askFor, "30d", true
		return
	case askFor:
		if err := p.span.UnmarshalText([]byte(text)); err != nil || p.span <= 0 {
			p.fault = "a duration has a unit: 15m, 1h, 7d"
			return
		}
	case askReason:
		if text == "" {
			p.fault = "write a few words for the audit trail"
			return
		}
		p.reason = text
	}
	p.asks, p.typed, p.given = p.asks+1, "", false
}

// confirm carries out the action or cancels it.
func (m topModel) confirm(p keyPress) (topModel, topEffect) {
	switch p.letter {
	case 'y', 'Y':
		change := proxy.KeyChange{Action: m.prompt.action, Plan: m.prompt.plan, For: m.prompt.span, Reason: m.prompt.reason}
		act := actOn(m.prompt.key, change)
		m.prompt, m.note = nil, "..."
		return m, topEffect{act: &act}
	case 'n', 'N':
		m.prompt, m.note = nil, "nothing was changed"
	default:
		m.prompt.fault = "y does it, n does not"
	}
	return m, topEffect{}
}
