package org.bertzoo.sample

import java.text.Normalizer
import org.json.JSONObject

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
    fun encode(text: String): List<Int> =
        words(normalize(text, lowercase, stripAccents, splitChinese)).flatMap(::pieces)

    /** Splits at spaces, and makes each punctuation mark a word. */
    private fun words(text: String): List<String> {
        val words = ArrayList<String>()
        val word = StringBuilder()
        fun end() {
            if (word.isNotEmpty()) words.add(word.toString())
            word.clear()
        }
        for (character in text.codePoints()) {
            if (isSpace(character)) {
                end()
            } else if (isPunctuation(character)) {
                end()
                words.add(String(Character.toChars(character)))
            } else {
                word.appendCodePoint(character)
            }
        }
        end()
        return words
    }

    /** Returns the ids of the longest pieces from the left, or [UNK] alone if a part of the word is no piece. */
    private fun pieces(word: String): List<Int> {
        val length = word.codePointCount(0, word.length)
        if (length > longestWord) return listOf(unknown)
        val pieces = ArrayList<Int>()
        var start = 0
        while (start < word.length) {
            val prefix = if (start == 0) "" else "##"
            var end = word.length
            while (end > start && prefix + word.substring(start, end) !in ids) end = word.offsetByCodePoints(end, -1)
            if (end == start) return listOf(unknown)
            pieces.add(ids.getValue(prefix + word.substring(start, end)))
            start = end
        }
        return pieces
    }
}

/** Returns a text as BERT's tokenizer changes it before it cuts words: no control characters, one kind of space. */
fun normalize(text: String, lowercase: Boolean, stripAccents: Boolean, splitChinese: Boolean): String {
    val clean = StringBuilder()
    for (character in text.codePoints()) {
        when {
            isRemoved(character) -> {}
            isSpace(character) -> clean.append(' ')
            splitChinese && isChinese(character) -> clean.append(' ').appendCodePoint(character).append(' ')
            else -> clean.appendCodePoint(character)
        }
    }
    val source = if (stripAccents) Normalizer.normalize(clean, Normalizer.Form.NFD) else clean.toString()
    val normal = StringBuilder()
    for (character in source.codePoints()) {
        if (stripAccents && Character.getType(character) == NONSPACING_MARK) continue
        // Each character alone, because String.lowercase turns a capital sigma at a word's end into another letter.
        if (lowercase) normal.append(String(Character.toChars(character)).lowercase())
        else normal.appendCodePoint(character)
    }
    return normal.toString()
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
