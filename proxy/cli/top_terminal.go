package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
)

// A topTerminal shows a model on a terminal and carries out its effects.
type topTerminal struct {
	tcell.Screen
	source   topSource
	model    topModel
	messages chan topMessage
	fetching bool // a fetch is in progress
	work     sync.WaitGroup
}

// showTop shows the data of source until the operator quits or ctx is done. It restores
// the terminal.
func showTop(ctx context.Context, source topSource, every time.Duration) error {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", errNoTerminal, err)
	}
	defer screen.Fini()
	return runTop(ctx, screen, source, every)
}

// runTop is showTop on an initialized screen.
func runTop(ctx context.Context, screen tcell.Screen, source topSource, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &topTerminal{Screen: screen, source: source, messages: make(chan topMessage), model: topModel{source: source.client.Address}}
	defer s.work.Wait()
	defer cancel()
	events, quit := make(chan tcell.Event), make(chan struct{})
	s.work.Go(func() { screen.ChannelEvents(events, quit) })
	defer func() {
		close(quit)
		for range events { // ends when the reader of the screen has stopped
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	s.model.width, s.model.height = screen.Size()
	s.do(ctx, topEffect{fetch: true})
	for {
		s.draw()
		var message topMessage
		select {
		case event, open := <-events:
			if _, gone := event.(*tcell.EventError); gone || !open {
				return nil // the terminal is gone
			}
			message = messageOf(event)
			if _, resized := message.(topSize); resized {
				screen.Sync()
			}
		case message = <-s.messages:
			if _, looked := message.(topFetched); looked {
				s.fetching = false
			}
		case <-tick.C:
			s.do(ctx, topEffect{fetch: !s.model.paused})
		case <-ctx.Done():
			return nil
		}
		if message == nil {
			continue
		}
		var effect topEffect
		if s.model, effect = s.model.update(message); effect.end {
			return nil
		}
		s.do(ctx, effect)
	}
}

// do starts an effect; its result arrives as a message.
func (t *topTerminal) do(ctx context.Context, e topEffect) {
	if e.fetch && !t.fetching {
		t.fetching = true
		t.work.Go(func() {
			data, err := t.source.fetch(ctx)
			t.handle(ctx, topFetched{data, err})
		})
	}
	if act := e.act; act != nil {
		t.work.Go(func() {
			done, err := t.source.do(ctx, act.change)
			t.handle(ctx, topActed{*act, done, err})
		})
	}
}

func (t *topTerminal) handle(ctx context.Context, m topMessage) {
	select {
	case t.messages <- m:
	case <-ctx.Done():
	}
}

// draw draws the model on the screen.
func (t *topTerminal) draw() {
	t.Clear()
	for y, line := range t.model.view() {
		style := styleOf(line.style)
		t.PutStrStyled(0, y, line.text, style)
	}
	t.Show()
}

func styleOf(s topStyle) tcell.Style {
	style := tcell.StyleDefault
	switch s {
	case headLine:
		return style.Bold(true)
	case dimLine:
		return style.Dim(true)
	case badLine:
		return style.Foreground(tcell.ColorMaroon) // the terminal's own red
	case chosenLine:
		return style.Reverse(true)
	}
	return style
}

// messageOf converts an event to a message; nil for none.
func messageOf(event tcell.Event) topMessage {
	switch event := event.(type) {
	case *tcell.EventResize:
		width, height := event.Size()
		return topSize{width, height}
	case *tcell.EventKey:
		names := map[tcell.Key]string{
			tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup", tcell.KeyPgDn: "pgdn",
			tcell.KeyHome: "home", tcell.KeyEnd: "end", tcell.KeyTab: "tab", tcell.KeyBacktab: "backtab", tcell.KeyEnter: "enter", tcell.KeyEsc: "esc",
			tcell.KeyBackspace: "backspace", tcell.KeyBackspace2: "backspace", tcell.KeyCtrlC: "ctrl-c",
		}
		if name := names[event.Key()]; name != "" {
			return keyPress{name: name}
		}
		if event.Key() == tcell.KeyRune {
			return keyPress{letter: event.Rune()}
		}
	}
	return nil
}
