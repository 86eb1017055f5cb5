// Package message turns outcomes into sentences for the person who pressed the button, in Russian and in English.
//
//	holdfast.Outcome ──► Detail ──► sentences, each with the numbers of the outcome ──► one text
//	holdfast.Catalog ──► names of units, features and plans  ┘     en.json, ru.json
//
// It is there so that a refusal says which one, with which numbers and until when, and so that every word of it is true:
// a text is composed from what the decision answered, and from nothing else. Edges call it when they answer (the HTTP
// API for detail and title, the bot for its replies); stored answers keep numbers, not texts.
//
// What it never does: compute an amount, look anything up, or promise. "Nothing was charged" is one sentence, said in
// one place, and only of a reservation that ended without a charge. Texts are plain: whoever puts one into HTML or
// Markdown escapes it, names from the catalog included.
package message
