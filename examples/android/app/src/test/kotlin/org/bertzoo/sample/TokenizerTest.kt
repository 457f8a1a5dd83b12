package org.bertzoo.sample

import java.io.File
import org.json.JSONArray
import org.json.JSONObject
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

/** Tests of everything between a text and a row, on the files that bertzoo wrote; they need no phone. */
class TokenizerTest {
    private val file = System.getenv("BERTZOO_FILE") ?: "src/main/assets/model.tflite"
    private val info = ModelInfo(File("$file.json").readText(), companion("vocab.txt"))

    private fun companion(name: String) = File("$file.files", name).readText()

    @Test
    fun `rows equal golden json`() {
        val rows = JSONArray(companion("golden.json")).objects()
        assertTrue(rows.isNotEmpty())
        for (golden in rows) {
            val texts = golden.getJSONArray("texts").let { all -> Array(all.length(), all::getString) }
            val row = info.row(*texts)
            val inputs = golden.getJSONObject("inputs")
            assertEquals(texts.joinToString(), golden.getString("signature"), row.signature)
            assertEquals(inputs.keys().asSequence().toSet(), row.inputs.keys)
            for ((name, values) in row.inputs) {
                assertEquals("$name of ${texts.joinToString()}", inputs.getJSONArray(name).ints(), values.toList())
            }
        }
    }

    @Test
    fun `tokens of unusual texts equal tokens json`() {
        val tokens = JSONArray(companion("tokens.json")).objects()
        assertTrue(tokens.isNotEmpty())
        val different = tokens.map { it.getString("text") to it.getJSONArray("ids").ints() }
            .filter { (text, ids) -> info.tokenizer.encode(text) != ids }
        assertEquals("${different.size} of ${tokens.size} texts: ${different.take(5)}", 0, different.size)
    }

    @Test
    fun `a long text fills the longest signature and keeps its last token`() {
        val short = info.row("a")
        val long = info.row("a ".repeat(10_000))
        val ids = long.inputs.getValue("input_ids")
        assertTrue(ids.size >= short.inputs.getValue("input_ids").size)
        assertEquals(short.inputs.getValue("input_ids")[2], ids.last()) // [CLS] a [SEP]
        assertTrue(long.inputs.getValue("attention_mask").all { it == 1 })
    }
}

/** Tests of the probabilities, with JSONs of two labels. */
class ProbabilitiesTest {
    private val tokenizer = """{"kind": "wordpiece", "entries": 1, "longest_word": 100, "specials": {"unk": {"id": 0}},
        "normalization": {"lowercase": true, "strip_accents": true, "split_cjk": true}}"""

    private fun info(problem: String?) = ModelInfo(
        """{"tokenizer": $tokenizer, "inputs": {}, "signatures": {}, "head": {"kind": "sequence_classification",
            "labels": ["no", "yes"], "problem_type": ${problem?.let { "\"$it\"" }}}}""",
        "[UNK]\n",
    )

    @Test
    fun `one label is chosen by softmax, the largest first`() {
        val (first, second) = info(null).probabilities(floatArrayOf(1000f, 1001f))
        assertEquals(listOf("yes", "no"), listOf(first.first, second.first))
        assertEquals(0.7310586f, first.second, 1e-6f)
        assertEquals(1f, first.second + second.second, 1e-6f)
    }

    @Test
    fun `several labels have a sigmoid each`() {
        val shares = info("multi_label_classification").probabilities(floatArrayOf(0f, 1f)).toMap()
        assertEquals(0.5f, shares.getValue("no"), 1e-6f)
        assertEquals(0.7310586f, shares.getValue("yes"), 1e-6f)
    }

    @Test
    fun `the answer reaches its threshold`() {
        val shares = listOf("yes" to 0.6f, "no" to 0.4f)
        fun answered(more: String) = answer(JSONObject("""{"labels": ["no", "yes"]$more}"""), shares)
        val several = """, "problem_type": "multi_label_classification""""
        assertEquals(listOf("yes"), answered(""))
        assertEquals(listOf("no"), answered(""", "thresholds": [0.3, 0.7]"""))
        assertEquals(emptyList<String>(), answered(""", "thresholds": [0.7, 0.7]"""))
        assertEquals(listOf("yes"), answered(several))
        assertEquals(listOf("yes", "no"), answered(""", "thresholds": [0.4, 0.4]$several"""))
    }

    @Test(expected = IllegalStateException::class)
    fun `another number of outputs is an error`() {
        info(null).probabilities(floatArrayOf(1f))
    }
}

private fun JSONArray.objects(): List<JSONObject> = List(length(), ::getJSONObject)

private fun JSONArray.ints(): List<Int> = List(length(), ::getInt)
