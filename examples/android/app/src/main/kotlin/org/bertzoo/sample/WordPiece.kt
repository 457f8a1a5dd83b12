package org.bertzoo.sample

import java.text.Normalizer
import org.json.JSONObject

/** A token, and its place in the text in UTF-16 units, as strings count. first: whether it begins a word. */
class Token(val id: Int, val start: Int, val end: Int, val first: Boolean)

/** A normalised character, and the place in the text of the character that it comes from. */
private class Normal(val character: Int, val start: Int, val end: Int)

/**
 * BERT's WordPiece tokenizer, without Android classes.
 *
 * rules: the object `tokenizer` of the JSON beside an exported file. vocabulary: the content of vocab.txt.
 */
class WordPiece(rules: JSONObject, vocabulary: String) {
    private val ids = vocabulary.removeSuffix("\n").split('\n').withIndex().associate { (id, token) -> token to id }
    private val unknown = rules.getJSONObject("specials").getJSONObject("unk").getInt("id")
    private val longestWord = rules.getInt("longest_word") // in code points; longer words become [UNK]
    private val lowercase = rules.getJSONObject("normalization").getBoolean("lowercase")
    private val stripAccents = rules.getJSONObject("normalization").getBoolean("strip_accents")
    private val splitChinese = rules.getJSONObject("normalization").getBoolean("split_cjk")

    init {
        check(ids.size == rules.getInt("entries")) {
            "vocab.txt has ${ids.size} entries, but the model's tokenizer ${rules.getInt("entries")}. Copy both files."
        }
    }

    /** Returns the ids of a text, without special tokens. */
    fun encode(text: String): List<Int> = tokens(text).map { it.id }

    /** Returns the tokens of a text with their places, without special tokens. */
    fun tokens(text: String): List<Token> =
        words(normalized(text, lowercase, stripAccents, splitChinese)).flatMap(::pieces)

    /** Splits at spaces, and makes each punctuation mark a word. */
    private fun words(text: List<Normal>): List<List<Normal>> {
        val words = ArrayList<List<Normal>>()
        var word = ArrayList<Normal>()
        for (one in text) {
            if (isSpace(one.character) || isPunctuation(one.character)) {
                words.add(word)
                word = ArrayList()
                if (isPunctuation(one.character)) words.add(listOf(one))
            } else {
                word.add(one)
            }
        }
        words.add(word)
        return words.filter { it.isNotEmpty() }
    }

    /** Returns the longest pieces from the left, or [UNK] alone if a part of the word is no piece. */
    private fun pieces(word: List<Normal>): List<Token> {
        fun token(id: Int, from: Int, to: Int) = Token(id, word[from].start, word[to - 1].end, from == 0)
        val unknown = listOf(token(unknown, 0, word.size))
        if (word.size > longestWord) return unknown
        val pieces = ArrayList<Token>()
        var start = 0
        while (start < word.size) {
            val piece = StringBuilder(if (start == 0) "" else "##")
            for (at in start until word.size) piece.appendCodePoint(word[at].character)
            var end = word.size
            while (end > start && piece.toString() !in ids) piece.setLength(piece.length - Character.charCount(word[--end].character))
            if (end == start) return unknown
            pieces.add(token(ids.getValue(piece.toString()), start, end))
            start = end
        }
        return pieces
    }
}

/** Returns a text as BERT's tokenizer changes it before it cuts words: no control characters, one kind of space. */
fun normalize(text: String, lowercase: Boolean, stripAccents: Boolean, splitChinese: Boolean): String {
    val normal = StringBuilder()
    normalized(text, lowercase, stripAccents, splitChinese).forEach { normal.appendCodePoint(it.character) }
    return normal.toString()
}

private fun normalized(text: String, lowercase: Boolean, stripAccents: Boolean, splitChinese: Boolean): List<Normal> {
    val normal = ArrayList<Normal>()
    var start = 0
    for (character in text.codePoints()) {
        val end = start + Character.charCount(character)
        val string = String(Character.toChars(character))
        val clean = when {
            isRemoved(character) -> ""
            isSpace(character) -> " "
            splitChinese && isChinese(character) -> " $string "
            else -> string
        }
        for (one in (if (stripAccents) Normalizer.normalize(clean, Normalizer.Form.NFD) else clean).codePoints()) {
            if (stripAccents && Character.getType(one) == NONSPACING_MARK) continue
            // Each character alone, because String.lowercase turns a capital sigma at a word's end into another letter.
            val last = String(Character.toChars(one)).let { if (lowercase) it.lowercase() else it }
            last.codePoints().forEach { normal.add(Normal(it, start, end)) }
        }
        start = end
    }
    return normal
}

private const val NONSPACING_MARK = Character.NON_SPACING_MARK.toInt()

private fun isSpace(character: Int) =
    character == '\t'.code || character == '\n'.code || character == '\r'.code || Character.isSpaceChar(character)

/** Control, format and private-use characters, NUL and the replacement character, except tabs and line breaks. */
private fun isRemoved(character: Int) = when (Character.getType(character).toByte()) {
    Character.CONTROL -> character != '\t'.code && character != '\n'.code && character != '\r'.code
    Character.FORMAT, Character.PRIVATE_USE, Character.SURROGATE -> true
    else -> character == 0xFFFD
}

private fun isChinese(character: Int) =
    character in 0x4E00..0x9FFF || character in 0x3400..0x4DBF || character in 0x20000..0x2A6DF ||
        character in 0x2A700..0x2B73F || character in 0x2B740..0x2B81F || character in 0x2B920..0x2CEAF ||
        character in 0xF900..0xFAFF || character in 0x2F800..0x2FA1F

private fun isPunctuation(character: Int) = when (Character.getType(character).toByte()) {
    Character.CONNECTOR_PUNCTUATION, Character.DASH_PUNCTUATION, Character.START_PUNCTUATION,
    Character.END_PUNCTUATION, Character.INITIAL_QUOTE_PUNCTUATION, Character.FINAL_QUOTE_PUNCTUATION,
    Character.OTHER_PUNCTUATION -> true
    else -> character < 128 && "$+<=>^`|~".contains(character.toChar())
}
