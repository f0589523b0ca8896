package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy"
)

// A topModel is the state of top, as in the Elm architecture. Only topModel.update
// changes it, and has no side effects: it returns a topEffect to be carried out, whose
// result is the next message.
type topModel struct {
	width, height int
	source        string // address of the admin listener
	data          topData
	loaded        bool
	fault         string // error of the last fetch; empty if it succeeded
	page          topPage
	order         topOrder
	chosen        [pageCount]string // id of the row that is selected on each page
	prompt        *topPrompt        // nil while no prompt is open
	standing      *topStanding      // nil while no key is looked up
	note          string            // result of the last action
	paused, help  bool
}

// A topStanding is the state of a key that was looked up.
type topStanding struct {
	key keyOfRow
	topDone
}

// A topMessage is an event: keyPress, topSize, topFetched or topActed.
type topMessage interface{ topMessage() }

// A keyPress is a key of the keyboard: a name such as "up", or a character.
type keyPress struct {
	name   string
	letter rune
}

// A topSize is the size of the terminal.
type topSize struct{ width, height int }

// A topFetched is the result of a fetch.
type topFetched struct {
	data topData
	err  error
}

// A topActed is the result of an action.
type topActed struct {
	act  topAct
	done topDone
	err  error
}

func (keyPress) topMessage()   {}
func (topSize) topMessage()    {}
func (topFetched) topMessage() {}
func (topActed) topMessage()   {}

// A topEffect is a side effect that update asks for.
type topEffect struct {
	fetch bool    // fetch all of it now
	act   *topAct // nil for none
	end   bool
}

// A topAct is an action on a key; without an action the key is looked up.
type topAct struct {
	key    keyOfRow
	change proxy.KeyChange
}

// actOn returns an action on all limits that count by a key.
func actOn(k keyOfRow, c proxy.KeyChange) topAct {
	c.Pairs = []proxy.KeyPair{{Key: k.name, Value: k.id}}
	return topAct{k, c}
}

// update returns the model after a message.
func (m topModel) update(msg topMessage) (topModel, topEffect) {
	switch msg := msg.(type) {
	case topSize:
		m.width, m.height = msg.width, msg.height
	case topFetched:
		if msg.err != nil {
			m.fault = printable(msg.err.Error())
			return m, topEffect{}
		}
		m.data, m.loaded, m.fault = msg.data, true, ""
	case topActed:
		return m.acted(msg)
	case keyPress:
		if m.prompt != nil {
			return m.answer(msg)
		}
		return m.press(msg)
	}
	return m, topEffect{}
}

// acted shows the result of an action.
func (m topModel) acted(msg topActed) (topModel, topEffect) {
	if msg.err != nil {
		m.note = printable("not done: " + msg.err.Error())
		return m, topEffect{}
	}
	m.standing = &topStanding{msg.act.key, msg.done}
	m.note = ""
	if !msg.done.changed {
		return m, topEffect{}
	}
	affected := len(proxy.KeyResult{Changed: msg.done.limits}.Affected())
	m.note = fmt.Sprintf("%s %s under %s, %s", done(msg.act.change), msg.act.key.masked, plural(affected, "limit"), msg.done.where)
	if affected == 0 {
		m.note = fmt.Sprintf("there was nothing to end for %s under %s", msg.act.key.masked, plural(len(msg.done.limits), "limit"))
	}
	return m, topEffect{fetch: true}
}

// done returns the past tense of an action.
func done(c proxy.KeyChange) string {
	switch c.Action {
	case proxy.KeyBan:
		return "banned for " + c.For.String() + ":"
	case proxy.KeyUnban:
		return "unbanned"
	case proxy.KeyAssign:
		return "plan " + c.Plan + " for " + c.For.String() + ":"
	case proxy.KeyUnassign:
		return "ended the plan of"
	}
	return "reset"
}

// press handles a key press while no prompt is open.
func (m topModel) press(p keyPress) (topModel, topEffect) {
	switch p.name {
	case "up", "down", "pgup", "pgdn", "home", "end":
		m.move(p.name)
		return m, topEffect{}
	case "left", "backtab":
		m.page = (m.page + pageCount - 1) % pageCount
		return m, topEffect{}
	case "right", "tab":
		m.page = (m.page + 1) % pageCount
		return m, topEffect{}
	case "esc":
		m.help, m.standing, m.note = false, nil, ""
		return m, topEffect{}
	case "ctrl-c":
		return m, topEffect{end: true}
	case "enter":
		p.letter = 'i'
	}
	switch p.letter {
	case 'q':
		return m, topEffect{end: true}
	case '?', 'h':
		m.help = !m.help
	case ' ', 'p':
		m.paused = !m.paused
		return m, topEffect{fetch: !m.paused}
	case 's':
		m.order = byRequests - m.order
	case 'k':
		m.move("up")
	case 'j':
		m.move("down")
	case '1', '2', '3', '4', '5':
		m.page = topPage(p.letter - '1')
	case 'a', 'b', 'r', 'u', 'i':
		return m.begin(p.letter)
	}
	return m, topEffect{}
}

// begin starts the action of a letter on the selected key.
func (m topModel) begin(letter rune) (topModel, topEffect) {
	row, found := m.selected()
	if !found || row.key == nil {
		m.note = "no key is selected; go to Keys with 1, and select one with up and down"
		return m, topEffect{}
	}
	if letter == 'i' {
		act := actOn(*row.key, proxy.KeyChange{})
		return m, topEffect{act: &act}
	}
	if letter == 'a' {
		plans := m.data.plansOf(row.key.name)
		if m.note = "no limit that counts by " + row.key.name + " has plans"; len(plans) > 0 {
			m.prompt, m.note = newPlanPrompt(*row.key, plans), ""
		}
		return m, topEffect{}
	}
	action := map[rune]proxy.KeyAction{'b': proxy.KeyBan, 'r': proxy.KeyReset, 'u': proxy.KeyUnban}[letter]
	m.prompt, m.note = newTopPrompt(action, *row.key), ""
	return m, topEffect{}
}

// selected returns the selected row of the current page, or the first row if that one is
// gone.
func (m topModel) selected() (topRow, bool) {
	rows := m.data.table(m.page, m.order).rows
	if len(rows) == 0 {
		return topRow{}, false
	}
	return rows[m.at(rows)], true
}

// at returns the index of the selected row.
func (m topModel) at(rows []topRow) int {
	return max(slices.IndexFunc(rows, func(r topRow) bool { return r.id == m.chosen[m.page] }), 0)
}

// move selects another row.
func (m *topModel) move(how string) {
	rows := m.data.table(m.page, m.order).rows
	if len(rows) == 0 {
		return
	}
	page := max(m.height/2, 1)
	to := m.at(rows) + map[string]int{"up": -1, "down": 1, "pgup": -page, "pgdn": page, "home": -len(rows), "end": len(rows)}[how]
	m.chosen[m.page] = rows[min(max(to, 0), len(rows)-1)].id
}

// helpText returns the help for the keys.
func helpText() []string {
	return strings.Split(`1 to 5, tab, left, right   another page
up, down, j, k, page up, page down, home, end   another row
s   order keys by refusals, or by requests
enter, i   how the selected key stands, and when it passes again
b   ban the selected key      r   reset it      u   end its bans      a   assign a plan
space, p   stop, or go on      esc   close what is open      q   end
Each change asks for a reason, which is kept in the audit trail.`, "\n")
}
