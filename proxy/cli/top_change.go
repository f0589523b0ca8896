package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/tview"

	"github.com/weir-proxy/weir/proxy"
)

// A topAction is a change of a key that top offers.
type topAction struct {
	proxy.KeyAction
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
	c := proxy.KeyChange{Action: action.KeyAction, KeyQuery: proxy.KeyQuery{Pairs: []proxy.KeyPair{{Key: k.name, Value: k.id}}}}
	plans := t.data.plansOf(k.name)
	t.form.Clear(true).SetFocus(0)
	switch {
	case c.Action == "":
		t.act(ctx, c)
		return
	case c.Action == proxy.KeyAssign && len(plans) == 0:
		t.close("no limit that counts by " + k.name + " has plans")
		return
	case c.Action == proxy.KeyAssign:
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
			if c.Action == proxy.KeyAssign && c.Plan == "" {
				done.Action, done.For = proxy.KeyUnassign, 0
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
func (t *topTerminal) act(ctx context.Context, c proxy.KeyChange) {
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
func (c topCommand) do(ctx context.Context, change proxy.KeyChange) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	var b strings.Builder
	text := keysText{w: &b}
	_, err := text.ask(ctx, c.client(), change)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n"), err
}
