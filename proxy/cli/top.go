package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// topCommand shows live statistics of all nodes: the keys with most requests
// and most refusals.
type topCommand struct {
	Route   string        `help:"Only keys of limits of this route." placeholder:"NAME" names:"routes"`
	Limit   string        `help:"Only keys of limits of this name." placeholder:"NAME" names:"limits"`
	Minutes int           `default:"15" help:"Count keys over the last N minutes, 1 to 15; default: 15." placeholder:"N"`
	Every   time.Duration `default:"2s" help:"Refresh interval; default: 2s." placeholder:"DURATION"`
	Rows    int           `short:"n" default:"20" help:"Show at most N keys of each limit, and with --once at most N rows of each table; 1 to 1000, default: 20." placeholder:"N"`
	Once    bool          `help:"Print once as plain text, and exit." xor:"form"`
	JSON    bool          `name:"json" help:"Print once as JSON, and exit." xor:"form"`
	adminFlags
}

const (
	// minInterval is the shortest allowed refresh interval.
	minInterval = 200 * time.Millisecond
	// topTimeout bounds each fetch and each action.
	topTimeout = 10 * time.Second
)

// Run shows the statistics until the operator quits.
func (c topCommand) Run(ctx context.Context, w Env) error {
	switch {
	case c.Minutes < 1 || c.Minutes > admin.TopMinutes:
		return misusef("--minutes %d: keys are counted over the last %d minutes; write 1 to %d", c.Minutes, admin.TopMinutes, admin.TopMinutes)
	case c.Every < minInterval:
		return misusef("--every %v: too often; write %v or more", c.Every, minInterval)
	case c.Rows < 1 || c.Rows > admin.MaxRows:
		return misusef("-n %d: write 1 to %d", c.Rows, admin.MaxRows)
	}
	if c.Once || c.JSON {
		data, err := c.fetch(ctx)
		if err != nil || c.JSON {
			return printJSON(w, data, err)
		}
		return printTop(w.Stdout, data, c.Rows)
	}
	if !isTerminal(w.Stdin) || !isTerminal(w.Stdout) || os.Getenv("TERM") == "dumb" {
		return errNoTerminal
	}
	return showTop(ctx, tview.NewApplication(), c)
}

// errNoTerminal reports that standard output is not a usable terminal.
var errNoTerminal = errors.New("top needs a terminal with cursor addressing; weir top --once prints once without one")

// printTop writes all pages, one after the other, with at most so many rows each.
func printTop(out io.Writer, d topData, rows int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; keys of the last %d minutes, as of %s\n", d.summary(), d.Minutes, d.At.UTC().Format(time.RFC3339))
	for page := range pageCount {
		table := d.table(page, byRefused)
		fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(page.title()))
		if len(table.rows) == 0 {
			fmt.Fprintf(&b, "  %s\n", table.empty)
			continue
		}
		_ = table.print(&b, "  ", rows) // which a builder takes
		if more := len(table.rows) - rows; more > 0 {
			fmt.Fprintf(&b, "  and %s; -n prints more\n", plural(more, "other row"))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// A topTerminal shows the data of top on a terminal, and changes keys. What it shows is changed only by the
// goroutine that runs app.
type topTerminal struct {
	command topCommand
	app     *tview.Application
	head    *tview.TextView // title, state and pages
	table   *tview.Table
	below   *tview.TextView // help, or how a key stands
	form    *tview.Form     // what a change needs; empty while none is asked for
	foot    *tview.TextView // a note, and what keys do
	data    topData
	loaded  bool
	paused  bool   // what is fetched is not shown
	fault   string // error of the last fetch; empty if it succeeded
	page    topPage
	order   topOrder
	rows    []textRow         // of the table
	chosen  [pageCount]string // id of the row that is selected on each page
}

const (
	// maxCell is the maximum width of a column, and maxInput that of an answer in characters.
	maxCell, maxInput = 40, 200
	// besides is how many lines there are at least, beside what is below the table.
	besides = 8
	topKeys = "q end  tab page  up/down row  s order  enter standing  b ban  r reset  u unban  a plan  ? help"
	topForm = "enter next  esc leave it"
	topHelp = `1 to 5, tab   another page      up, down, page up, page down, home, end   another row
left, right   more columns      s   order keys by refusals, or by requests
enter, i   how the selected key stands, and when it passes again
b   ban the selected key      r   reset it      u   end its bans      a   assign a plan
space, p   stop, or go on      esc   close what is open      q   end
Each change asks for a reason, which is kept in the audit trail.`
)

// showTop shows the data until the operator quits, the terminal is gone or ctx is done.
func showTop(ctx context.Context, app *tview.Application, c topCommand) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tview.Styles = tview.Theme{} // the terminal's own colours
	t := &topTerminal{
		command: c, app: app, head: tview.NewTextView().SetDynamicColors(true).SetWrap(false), table: tview.NewTable(),
		below: tview.NewTextView().SetWrap(false), form: tview.NewForm(), foot: tview.NewTextView().SetWrap(false),
	}
	t.table.SetFixed(1, 0).SetEvaluateAllRows(true).SetSelectedStyle(tcell.StyleDefault.Reverse(true))
	t.table.SetSelectionChangedFunc(func(row, _ int) { t.chosen[t.page] = t.rows[row-1].id })
	t.form.SetItemPadding(0).SetButtonActivatedStyle(tcell.StyleDefault.Reverse(true)).SetBorderPadding(0, 0, 0, 0)
	t.form.SetCancelFunc(func() { t.close("nothing was changed") })
	root := tview.NewFlex().SetDirection(tview.FlexRow).AddItem(t.head, 4, 0, false).AddItem(t.table, 0, 1, true).
		AddItem(t.below, 0, 0, false).AddItem(t.form, 0, 0, false).AddItem(t.foot, 2, 0, false)
	app.SetRoot(root, true).SetInputCapture(func(e *tcell.EventKey) *tcell.EventKey { return t.press(ctx, e) })
	app.SetBeforeDrawFunc(func(screen tcell.Screen) bool {
		_, height := screen.Size()
		form := t.form.GetFormItemCount() + 2*t.form.GetButtonCount() // a line is between them
		root.ResizeItem(t.form, form, 0)
		root.ResizeItem(t.below, min(t.below.GetOriginalLineCount(), max(height-besides-form, 0)), 0)
		return false
	})
	t.close("")
	t.show()
	go func() {
		tick := time.NewTicker(c.Every)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			t.fetch(ctx)
		}
	}()
	stop := context.AfterFunc(ctx, func() { app.QueueUpdate(app.Stop) })
	defer stop()
	err := app.Run()
	if gone := (*tcell.EventError)(nil); err == nil || errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("%w (%w)", errNoTerminal, err)
}

// fetch fetches the data and shows it. What is queued when app has ended is not run any more.
func (t *topTerminal) fetch(ctx context.Context) {
	data, err := t.command.fetch(ctx)
	t.app.QueueUpdateDraw(func() {
		switch t.fault = ""; {
		case err != nil:
			t.fault = printable(err.Error())
		case !t.paused:
			t.data, t.loaded = data, true
		}
		t.show()
	})
}

// show fills the head and the table.
func (t *topTerminal) show() {
	now, state, colour := "looking", "", "-"
	if t.loaded {
		now, state = "as of "+t.data.At.Format(time.TimeOnly), t.data.summary()
	}
	if t.paused {
		now += ", stopped"
	}
	if t.fault != "" || t.data.Away != "" {
		state, colour = cmp.Or(t.fault, state), "maroon" // the terminal's own red
	}
	title := tview.Escape("weir top  " + t.command.Admin + "  " + now)
	t.head.SetText(fmt.Sprintf("[::b]%s[::-]\n[%s]%s[-]\n%s", title, colour, tview.Escape(state), tview.Escape(t.tabs())))
	table := t.data.table(t.page, t.order)
	t.rows = table.rows
	t.table.Clear().SetSelectable(len(t.rows) > 0, false)
	switch {
	case !t.loaded:
		return
	case len(t.rows) == 0:
		t.table.SetCellSimple(0, 0, table.empty)
		return
	}
	t.line(0, table.columns, tcell.StyleDefault.Dim(true))
	for i, row := range t.rows {
		style := tcell.StyleDefault
		if row.bad {
			style = style.Foreground(tcell.ColorMaroon)
		}
		t.line(i+1, row.cells, style)
	}
	at := slices.IndexFunc(t.rows, func(r textRow) bool { return r.id == t.chosen[t.page] })
	t.table.Select(max(at, 0)+1, 0)
}

// line fills one line of the table.
func (t *topTerminal) line(y int, cells []string, style tcell.Style) {
	for x, text := range cells {
		cell := tview.NewTableCell(tview.Escape(text) + " ").SetStyle(style).SetMaxWidth(maxCell)
		t.table.SetCell(y, x, cell.SetSelectable(y > 0))
	}
}

// tabs returns the titles of the pages, the current one in brackets.
func (t *topTerminal) tabs() (text string) {
	for page := range pageCount {
		form := " %d %s "
		if page == t.page {
			form = "[%d %s]"
		}
		text += fmt.Sprintf(form, page+1, page.title())
	}
	if t.page == pageKeys {
		text += fmt.Sprintf("  %s first, last %d minutes", [...]string{"refused most", "most requests"}[t.order], t.command.Minutes)
	}
	return text
}

// press handles a key of the keyboard. It returns nil, or e for what has the focus.
func (t *topTerminal) press(ctx context.Context, e *tcell.EventKey) *tcell.EventKey {
	letter := rune(0)
	if e.Key() == tcell.KeyRune {
		letter = e.Rune()
	}
	action := map[rune]topAction{
		'b': {view.KeyBan, "Ban", "1h"}, 'r': {view.KeyReset, "Reset", ""}, 'u': {view.KeyUnban, "End the bans of", ""},
		'a': {view.KeyAssign, "Assign a plan to", "30d"},
	}[letter]
	step := map[tcell.Key]topPage{tcell.KeyTab: 1, tcell.KeyBacktab: pageCount - 1}[e.Key()]
	switch {
	case e.Key() == tcell.KeyCtrlC || t.form.HasFocus():
		return e
	case letter == 'q':
		t.app.Stop()
	case letter == '?' || letter == 'h':
		t.below.SetText(topHelp).ScrollToBeginning()
	case e.Key() == tcell.KeyEsc:
		t.below.SetText("")
		t.close("")
	case letter >= '1' && letter < '1'+rune(pageCount):
		t.page = topPage(letter - '1')
	case step > 0:
		t.page = (t.page + step) % pageCount
	case letter == 's':
		t.order = byRequests - t.order
	case letter == ' ' || letter == 'p':
		t.paused = !t.paused
	case action.verb != "" || letter == 'i' || e.Key() == tcell.KeyEnter:
		t.begin(ctx, action)
	default:
		return e
	}
	t.show()
	return nil
}

// close closes the form, and shows a note.
func (t *topTerminal) close(note string) {
	t.form.Clear(true)
	t.foot.SetText(note + "\n" + topKeys)
	t.app.SetFocus(t.table)
}

// A topAction is a change of a key that top offers.
type topAction struct {
	view.KeyAction
	verb, span string // the duration that is proposed; empty if the change has none
}

// begin opens the form for an action on the selected key, or looks the key up if there is no action.
func (t *topTerminal) begin(ctx context.Context, action topAction) {
	row, _ := t.table.GetSelection()
	if row < 1 || row > len(t.rows) || t.rows[row-1].key == nil {
		t.close("no key is selected; go to Keys with 1, and select one with up and down")
		return
	}
	k := *t.rows[row-1].key
	c := view.KeyChange{Action: action.KeyAction, KeyQuery: view.KeyQuery{Pairs: []view.KeyPair{{Key: k.name, Value: k.id}}}}
	plans := t.data.plansOf(k.name)
	t.form.Clear(true).SetFocus(0)
	switch {
	case c.Action == "":
		t.act(ctx, c)
		return
	case c.Action == view.KeyAssign && len(plans) == 0:
		t.close("no limit that counts by " + k.name + " has plans")
		return
	case c.Action == view.KeyAssign:
		t.ask("Plan", "", printable(strings.Join(plans, ", ")+"; without one, an assignment ends"), &c.Plan)
	}
	span := action.span
	if span != "" {
		t.ask("For", span, "", &span)
	}
	t.ask("Reason", "", "", &c.Reason)
	t.foot.SetText(fmt.Sprintf("%s %s under all limits that count by %s\n%s", action.verb, k.masked, k.name, topForm))
	t.form.AddButton(tview.Escape(action.verb+" "+k.masked), func() {
		fault := "write a few words for the audit trail"
		switch done := c; {
		case c.Plan != "" && !slices.Contains(plans, c.Plan):
			fault = "no such plan"
		case action.span != "" && (done.For.UnmarshalText([]byte(span)) != nil || done.For <= 0):
			fault = "a duration has a unit: 15m, 1h, 7d"
		case c.Reason != "":
			if c.Action == view.KeyAssign && c.Plan == "" {
				done.Action, done.For = view.KeyUnassign, 0
			}
			t.act(ctx, done)
			return
		}
		t.foot.SetText(fault + "\n" + topForm)
	})
	t.app.SetFocus(t.form)
}

// ask adds a field to the form, with an answer that is proposed, and a hint that is shown while there is none.
// What is typed is kept in answer.
func (t *topTerminal) ask(label, proposal, hint string, answer *string) {
	field := tview.NewInputField().SetLabel(label).SetText(proposal).SetPlaceholder(hint).
		SetAcceptanceFunc(tview.InputFieldMaxLength(maxInput))
	t.form.AddFormItem(field.SetChangedFunc(func(text string) { *answer = strings.TrimSpace(text) }))
}

// act changes a key, or looks it up, and shows how it stands after that.
func (t *topTerminal) act(ctx context.Context, c view.KeyChange) {
	t.close("")
	t.below.SetText("...")
	go func() {
		text, err := t.command.do(ctx, c)
		if err != nil {
			text = printable("not done: " + err.Error())
		}
		t.app.QueueUpdateDraw(func() { t.below.SetText(text).ScrollToBeginning() })
		t.fetch(ctx)
	}()
}

// do changes a key, or looks it up if change has no action. It returns how the key stands after that, as text.
func (c topCommand) do(ctx context.Context, change view.KeyChange) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	var b strings.Builder
	text := keysText{Writer: bufio.NewWriter(&b)}
	_, err := text.ask(ctx, c.client(), change)
	_ = text.Flush() // which a builder takes
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n"), err
}
